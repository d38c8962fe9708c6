"""German words: genders, plurals, verb forms, and the choices that depend on the English sense."""

from typing import NamedTuple


class Noun(NamedTuple):
    """A noun: singular, gender, plural; ``weak`` for the form of the other cases if they differ."""

    singular: str
    gender: str
    plural: str
    weak: str


_NOUNS = """
man Mann m Männer | woman Frau f Frauen | boy Junge m Jungen Jungen | girl Mädchen n Mädchen
teacher Lehrer m Lehrer | doctor Arzt m Ärzte | friend Freund m Freunde
student Student m Studenten Studenten | mother Mutter f - | father Vater m - | brother Bruder m -
sister Schwester f - | uncle Onkel m - | aunt Tante f - | dog Hund m Hunde | cat Katze f Katzen
bird Vogel m Vögel | horse Pferd n Pferde | book Buch n Bücher | newspaper Zeitung f Zeitungen
letter Brief m Briefe | story Geschichte f Geschichten | poem Gedicht n Gedichte | film Film m Filme
song Lied n Lieder | picture Bild n Bilder | apple Apfel m Äpfel | banana Banane f Bananen
egg Ei n Eier | cake Kuchen m Kuchen | bread Brot n - | fish Fisch m - | rice Reis m -
soup Suppe f - | coffee Kaffee m - | tea Tee m - | milk Milch f - | water Wasser n -
car Auto n Autos | bicycle Fahrrad n Fahrräder | bag Tasche f Taschen | chair Stuhl m Stühle
table Tisch m Tische | key Schlüssel m Schlüssel | lamp Lampe f Lampen | shirt Hemd n Hemden
flower Blume f Blumen | house Haus n Häuser | room Zimmer n Zimmer | door Tür f Türen
window Fenster n Fenster | question Frage f Fragen | football Fußball m - | chess Schach n -
tennis Tennis n - | piano Klavier n - | guitar Gitarre f - | violin Geige f - | garden Garten m -
kitchen Küche f - | park Park m - | school Schule f - | bank.money Bank f - | station Bahnhof m -
shop Laden m - | city Stadt f - | bank.river Ufer n -
"""


def _nouns() -> dict[str, Noun]:
    rows = (row.split() for row in _NOUNS.replace("\n", "|").split("|") if row.strip())
    return {
        key: Noun(singular, gender, plural, (more or [singular])[0])
        for key, singular, gender, plural, *more in rows
    }


NOUNS = _nouns()
NAMES = {"Anna": "she", "Paul": "he", "Maria": "she", "Peter": "he", "Lena": "she", "Felix": "he"}
FORMAL = {"Mrs Weber": ("Frau", "Weber"), "Mr Klein": ("Herr", "Klein")}
ADDRESSES = {"children": "Kinder"}
CITIES = ("Berlin", "Hamburg", "London")

# The six persons of a verb: ich, du, er, wir, ihr, sie (and the polite Sie).
PERSONS = ("ich", "du", "er", "wir", "ihr", "sie")
PERSON_OF = {
    "i": "ich",
    "you.one": "du",
    "you.many": "ihr",
    "you.formal": "sie",
    "we": "wir",
    "they": "sie",
}

# Nominative, accusative, dative.
PRONOUNS = {
    "i": ("ich", "mich", "mir"),
    "you.one": ("du", "dich", "dir"),
    "you.many": ("ihr", "euch", "euch"),
    "you.formal": ("Sie", "Sie", "Ihnen"),
    "he": ("er", "ihn", "ihm"),
    "she": ("sie", "sie", "ihr"),
    "it": ("es", "es", "ihm"),
    "it.m": ("er", "ihn", "ihm"),
    "it.f": ("sie", "sie", "ihr"),
    "it.n": ("es", "es", "ihm"),
    "we": ("wir", "uns", "uns"),
    "they": ("sie", "sie", "ihnen"),
    "who": ("wer", "wen", "wem"),
    "what": ("was", "was", "was"),
}
POSSESSIVES = {
    "my": "mein",
    "your.one": "dein",
    "your.many": "euer",
    "your.formal": "Ihr",
    "his": "sein",
    "her": "ihr",
    "our": "unser",
}
NUMBERS = {"two": "zwei", "three": "drei", "four": "vier"}

# Endings by case (nominative, accusative, dative) for masculine, feminine, neuter, plural.
GENDERS = "mfnp"
THE = (("der", "die", "das", "die"), ("den", "die", "das", "die"), ("dem", "der", "dem", "den"))
THIS = (("er", "e", "es", "e"), ("en", "e", "es", "e"), ("em", "er", "em", "en"))
EIN = (("", "e", "", "e"), ("en", "e", "", "e"), ("em", "er", "em", "en"))
AFTER_THE = (("e", "e", "e", "en"), ("en", "e", "e", "en"), ("en", "en", "en", "en"))
AFTER_EIN = (("er", "e", "es", "en"), ("en", "e", "es", "en"), ("en", "en", "en", "en"))
ALONE = (("er", "e", "es", "e"), ("en", "e", "es", "e"), ("em", "er", "em", "en"))


class Verb(NamedTuple):
    """A verb: its six present forms, infinitive, participle, auxiliary, separable prefix, object case."""

    present: tuple[str, ...]
    infinitive: str
    participle: str
    auxiliary: str = "haben"
    prefix: str = ""
    case: int = 1


_VERBS = """
see: sehe siehst sieht sehen seht sehen gesehen
read: lese liest liest lesen lest lesen gelesen
write: schreibe schreibst schreibt schreiben schreibt schreiben geschrieben
buy: kaufe kaufst kauft kaufen kauft kaufen gekauft
sell: verkaufe verkaufst verkauft verkaufen verkauft verkaufen verkauft
eat: esse isst isst essen esst essen gegessen
eat.animal: fresse frisst frisst fressen fresst fressen gefressen
drink: trinke trinkst trinkt trinken trinkt trinken getrunken
drink.animal: trinke trinkst trinkt trinken trinkt trinken getrunken
cook: koche kochst kocht kochen kocht kochen gekocht
hear: höre hörst hört hören hört hören gehört
open: mache machst macht machen macht machen gemacht haben auf
close: mache machst macht machen macht machen gemacht haben zu
look: suche suchst sucht suchen sucht suchen gesucht
meet: treffe triffst trifft treffen trefft treffen getroffen
love: liebe liebst liebt lieben liebt lieben geliebt
help: helfe hilfst hilft helfen helft helfen geholfen haben - 2
call: rufe rufst ruft rufen ruft rufen gerufen haben an
wash: wasche wäschst wäscht waschen wascht waschen gewaschen
wash.cloth: wasche wäschst wäscht waschen wascht waschen gewaschen
play.game: spiele spielst spielt spielen spielt spielen gespielt
play.instrument: spiele spielst spielt spielen spielt spielen gespielt
like: mag magst mag mögen mögt mögen gemocht
know.person: kenne kennst kennt kennen kennt kennen gekannt
have: habe hast hat haben habt haben gehabt
need: möchte möchtest möchte möchten möchtet möchten gemocht
give: gebe gibst gibt geben gebt geben gegeben
send: schicke schickst schickt schicken schickt schicken geschickt
go: gehe gehst geht gehen geht gehen gegangen sein
travel: fahre fährst fährt fahren fahrt fahren gefahren sein
come: komme kommst kommt kommen kommt kommen gekommen sein
live: wohne wohnst wohnt wohnen wohnt wohnen gewohnt
work: arbeite arbeitest arbeitet arbeiten arbeitet arbeiten gearbeitet
sleep: schlafe schläfst schläft schlafen schlaft schlafen geschlafen
think: glaube glaubst glaubt glauben glaubt glauben geglaubt
know.fact: weiß weißt weiß wissen wisst wissen gewusst
say: sage sagst sagt sagen sagt sagen gesagt
be: bin bist ist sind seid sind gewesen sein
"""


def _verbs() -> dict[str, Verb]:
    verbs = {}
    for row in _VERBS.strip().splitlines():
        key, _, forms = row.partition(": ")
        words = forms.split()
        auxiliary, prefix, case = (words[7:] + ["haben", "-", "1"][len(words) - 7 :])[:3]
        verbs[key] = Verb(tuple(words[:6]), words[3], words[6], auxiliary, prefix.replace("-", ""), int(case))
    return verbs


VERBS = _verbs()
# The two verbs that are usual in the preterite.
PRETERITE = {
    "be": ("war", "warst", "war", "waren", "wart", "waren"),
    "have": ("hatte", "hattest", "hatte", "hatten", "hattet", "hatten"),
}
MODALS = {
    "future": ("werde", "wirst", "wird", "werden", "werdet", "werden"),
    "can": ("kann", "kannst", "kann", "können", "könnt", "können"),
    "must": ("muss", "musst", "muss", "müssen", "müsst", "müssen"),
    "want": ("will", "willst", "will", "wollen", "wollt", "wollen"),
}

# Stem for endings, and the form after "ist" if it differs.
ADJECTIVES = {
    "good": "gut",
    "new": "neu",
    "old.thing": "alt",
    "old.person": "alt",
    "big": "groß",
    "small": "klein",
    "beautiful": "schön",
    "bright.person": "klug",
    "bright.thing": "hell",
    "light": "leicht",
    "hard.difficult": "schwierig",
    "hard.firm": "hart",
    "interesting": "interessant",
    "important": "wichtig",
    "red": "rot",
    "hot": "heiß",
    "tired": "müde",
    "happy": "glücklich",
    "sad": "traurig",
}

TIMES = {
    "today": "heute/ADV/1",
    "yesterday": "gestern/ADV/1",
    "tomorrow": "morgen/ADV/1",
    "now": "jetzt/ADV/1",
    "every day": "jeden/DET/1 Tag/NOUN/2",
    "morning": "am/ADP/12 Morgen/NOUN/3",
    "evening": "am/ADP/12 Abend/NOUN/3",
    "night": "in/ADP/1 der/DET/1 Nacht/NOUN/3",
    "last week": "letzte/ADJ/1 Woche/NOUN/2",
    "next week": "nächste/ADJ/1 Woche/NOUN/2",
}
QUESTIONS = {"where": "wo", "where.to": "wohin", "when": "wann", "why": "warum"}

# Preposition and case (1 accusative, 2 dative) of a relation; of "to", by the noun.
RELATIONS = {
    "in": ("in", 2),
    "at": ("in", 2),
    "on": ("auf", 2),
    "under": ("unter", 2),
    "behind": ("hinter", 2),
}
AT = {"station": "an", "bank.river": "an"}
TO = {
    "garden": ("in", 1),
    "kitchen": ("in", 1),
    "park": ("in", 1),
    "school": ("zu", 2),
    "bank.money": ("zu", 2),
    "station": ("zu", 2),
    "shop": ("in", 1),
    "city": ("in", 1),
}
CONTRACTED = {
    ("in", "dem"): "im",
    ("an", "dem"): "am",
    ("in", "das"): "ins",
    ("zu", "dem"): "zum",
    ("zu", "der"): "zur",
}
