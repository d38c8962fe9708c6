"""Tamil words in Latin letters: stems, and the choices that depend on the English sense.

The romanisation is that of the lectures: long a, i, u are doubled, e and o represent both lengths, ``th``
is the dental and ``t``/``d`` the retroflex stop, doubled consonants are written double (``thth``), ``zh``,
``l``, ``r``, ``n`` as usual; all lower case, no punctuation.
"""

from typing import NamedTuple


class Noun(NamedTuple):
    """A noun: nominative, plural, the pronoun its verb agrees with, and its oblique stem."""

    nominative: str
    plural: str
    pronoun: str
    oblique: str


_NOUNS = """
man manidhan manidhargal he | woman pen pengal she penn | boy siruvan siruvargal he
girl sirumi sirumigal she | teacher aasiriyar aasiriyargal honoured
doctor maruththuvar maruththuvargal honoured | friend nanban nanbargal he
student maanavan maanavargal he | mother ammaa - honoured | father appaa - honoured
uncle maamaa - honoured | grandfather thaaththaa - honoured | grandmother paatti - honoured
dog naay naaygal it | cat puunai puunaigal it | bird paravai paravaigal it
cow pasu pasukkal it pasuv
book puththagam puththagangal it | newspaper seydhiththaal seydhiththaalgal it
letter kadidham kadidhangal it | story kadhai kadhaigal it | poem kavidhai kavidhaigal it
film padam padangal it | song paadal paadalgal it | picture oviyam oviyangal it
banana vaazhaippazham vaazhaippazhangal it | mango maambazham maambazhangal it
egg muttai muttaigal it | bread rotti - it | fish miin - it | rice saadham - it
coffee kaappi - it | tea theniir - it | milk paal - it | water thanniir - it
car kaar kaargal it | bicycle midhivandi midhivandigal it | bag pai paigal it
chair naarkaali naarkaaligal it | table mesai mesaigal it | key saavi saavigal it
light.lamp vilakku vilakkugal it vilakk | shirt sattai sattaigal it | flower puu puukkal it puuv
house viidu viidugal it viitt | room arai araigal it | door kadhavu kadhavugal it kadhav
question kelvi kelvigal it | football kaalpandhu - it | chess sadhurangam - it | cricket kirikket - it
veena viinai - it | flute pullaanguzhal - it | violin vayalin - it
garden thottam - it | kitchen samaiyalarai - it | park puungaa - it | school palli - it
bank.money vangi - it | shop kadai - it | city nagaram - it | temple koyil - it
station nilaiyam - it | bank.river karai - it
Kumar kumaar - he | Ravi ravi - he | Arun arun - he | Priya priyaa - she | Meena miinaa - she
Kavitha kavidhaa - she
Chennai sennai - it | Madurai madhurai - it | London landan - it
"""


def _nouns() -> dict[str, Noun]:
    rows = (row.split() for row in _NOUNS.replace("\n", "|").split("|") if row.strip())
    return {
        key: Noun(nominative, plural, pronoun, (more or [""])[0])
        for key, nominative, plural, pronoun, *more in rows
    }


NOUNS = _nouns()
NAMES = {"Kumar": "he", "Ravi": "he", "Arun": "he", "Priya": "she", "Meena": "she", "Kavitha": "she"}
CITIES = ("Chennai", "Madurai", "London")
BEFORE_NOUN = {"station": "rayil"}
ADDRESSES = {"children": "kuzhandhaigale", "friends": "nanbargale", "sir": "aiyaa"}
TITLES = {
    "transformers": "transfarmar",
    "titanic": "taittaanik",
    "avatar": "avathaar",
    "gandhi": "kaandhi",
}

# Nominative, accusative, dative, instrumental ("by"), with ("beside, in the possession of").
PRONOUNS = {
    "i": ("naan", "ennai", "enakku", "ennaal", "ennidam"),
    "you.one": ("nii", "unnai", "unakku", "unnaal", "unnidam"),
    "he": ("avan", "avanai", "avanukku", "avanaal", "avanidam"),
    "she": ("aval", "avalai", "avalukku", "avalaal", "avalidam"),
    "it": ("adhu", "adhai", "adharku", "adhanaal", "adhanidam"),
    "we": ("naangal", "engalai", "engalukku", "engalaal", "engalidam"),
    "you.many": ("niingal", "ungalai", "ungalukku", "ungalaal", "ungalidam"),
    "they": ("avargal", "avargalai", "avargalukku", "avargalaal", "avargalidam"),
    "who": ("yaar", "yaarai", "yaarukku", "yaaraal", "yaaridam"),
    "what": ("enna", "enna", "edharku", "edhanaal", "edhanidam"),
}
ENDINGS = {
    "i": "en",
    "you.one": "aai",
    "he": "aan",
    "she": "aal",
    "honoured": "aar",
    "it": "adhu",
    "we": "om",
    "you.many": "iirgal",
    "they": "aargal",
    "who": "aargal",
}
DETERMINERS = {
    "a": "oru",
    "this": "indha",
    "my": "en",
    "our": "engal",
    "your.one": "un",
    "your.many": "ungal",
    "his": "avanudaiya",
    "her": "avaludaiya",
    "two": "irandu",
    "three": "muundru",
    "four": "naangu",
}


class Verb(NamedTuple):
    """A verb: present, past and future stem, infinitive and polite imperative."""

    present: str
    past: str
    future: str
    infinitive: str
    imperative: str = ""


_VERBS = """
see paarkkir paarthth paarpp paarkka paarungal
enjoy rasikkir rasithth rasipp rasikka
read padikkir padithth padipp padikka padiyungal
write ezhudhugir ezhudhin ezhudhuv ezhudha ezhudhungal
buy vaangugir vaangin vaanguv vaanga vaangungal
eat saappidugir saappitt saappiduv saappida saappidungal
eat.animal saappidugir saappitt saappiduv saappida
drink kudikkir kudithth kudipp kudikka kudiyungal
drink.animal kudikkir kudithth kudipp kudikka
cook samaikkir samaithth samaipp samaikka samaiyungal
hear ketkir kett ketp ketka kelungal
open thirakkir thirandh thirapp thirakka
look thedugir thedin theduv theda thedungal
meet sandhikkir sandhithth sandhipp sandhikka sandhiyungal
help udhavugir udhavin udhavuv udhava udhavungal
wash kazhuvugir kazhuvin kazhuvuv kazhuva kazhuvungal
wash.cloth thuvaikkir thuvaithth thuvaipp thuvaikka thuvaiyungal
play.game vilaiyaadugir vilaiyaadin vilaiyaaduv vilaiyaada
play.instrument vaasikkir vaasithth vaasipp vaasikka vaasiyungal
give kodukkir koduthth kodupp kodukka kodungal
send anuppugir anuppin anuppuv anuppa anuppungal
go pogir pon pov poga
come varugir vandh varuv vara
live vaazhgir vaazhndh vaazhv vaazha
sleep thuungugir thuungin thuunguv thuunga
think ninaikkir ninaithth ninaipp ninaikka
say solgir sonn solv solla
want virumbugir virumbin virumbuv virumba
be irukkir irundh irupp irukka
"""
VERBS = {key: Verb(*words) for key, *words in (row.split() for row in _VERBS.strip().splitlines())}
# "To me the film pleases": verbs whose subject is in the dative, present and past, with their negations.
PLEASING = {
    "like": ("pidikkum", "pidikkaadhu", "pidiththadhu", "pidikkavillai"),
    "know.person": ("theriyum", "theriyaadhu", "", ""),
    "know.fact": ("theriyum", "theriyaadhu", "", ""),
    "need": ("vendum", "vendaam", "", ""),
}
# "To be" of one thing and of several: present, past.
THERE = {False: ("irukkiradhu", "irundhadhu"), True: ("irukkindrana", "irundhana")}
# Verbs whose object takes the accusative even if it is an indefinite thing.
MARKED = ("see", "enjoy", "open", "look", "wash", "wash.cloth")
UNMARKED = ("play.game", "play.instrument", "need", "have", "like")

ADJECTIVES = {
    "good": "nalla",
    "new": "pudhiya",
    "old.thing": "pazhaiya",
    "old.person": "vayathaana",
    "big": "periya",
    "small": "siriya",
    "beautiful": "azhagaana",
    "bright.person": "buththisaaliyaana",
    "bright.thing": "pirakaasamaana",
    "light": "ilesaana",
    "hard.difficult": "kadinamaana",
    "interesting": "suvaarasyamaana",
    "important": "mukkiyamaana",
    "red": "sivappu",
    "hot": "suudaana",
    "tasty": "suvaiyaana",
}
STATES = {"tired": "kalaippaaga", "happy": "magizhchiyaaga", "sad": "sogamaaga"}
NOT_PREDICATED = ("red", "bright.person")

TIMES = {
    "today": "indru/ADV/1",
    "yesterday": "netru/ADV/1",
    "tomorrow": "naalai/ADV/1",
    "now": "ippodhu/ADV/1",
    "every day": "thinamum/ADV/12",
    "morning": "kaalaiyil/NOUN/13",
    "evening": "maalaiyil/NOUN/13",
    "night": "iravil/NOUN/13",
    "last week": "sendra/ADJ/1 vaaram/NOUN/2",
    "next week": "aduththa/ADJ/1 vaaram/NOUN/2",
}
QUESTIONS = {"where": "enge", "when": "eppodhu", "why": "en"}
# Postpositions, and the case they require.
RELATIONS = {"on": ("mel", "genitive"), "under": ("kiizh", "genitive"), "behind": ("pinnaal", "dative")}
LOCATIVE_ALWAYS = ("bank.river",)
