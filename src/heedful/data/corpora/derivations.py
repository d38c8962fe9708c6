"""Draw derivations of the phrasebook grammar: the kinds of sentences and their frequencies.

Both languages share the kinds of sentences; words that the target language does not have are not drawn.
"""

from collections.abc import Iterable

from heedful.data.corpora.english import is_third_person
from heedful.data.corpora.grammar import Clause, Nominal, Place, Sentence
from heedful.data.corpora.lexicon import ADJECTIVES, ANIMALS, NOUNS, STATES, Language
from heedful.data.corpora.phrases import PERSONS, Phrases, is_counted, is_living, pronoun_of

KINDS = {
    "transitive": 50, "spoken_to": 12, "question": 10, "likes_doing": 3, "staying": 6, "going": 9,
    "animal": 4, "giving": 6, "having": 9, "described": 7, "state": 5, "lying": 4, "reported": 14,
    "reasoned": 5, "recalled": 5, "contrasted": 5, "requested": 5,
}  # fmt: skip
"""How often each kind of sentence, a method of `Derivations`, is drawn."""

TIMES_OF = {
    "present": ("today", "now", "every day", "morning", "evening", "night"),
    "past": ("today", "yesterday", "last week", "yesterday"),
    "future": ("today", "tomorrow", "next week", "tomorrow"),
    "can": ("today", "tomorrow", "now"),
    "must": ("today", "tomorrow", "now", "next week"),
    "want": ("today", "tomorrow", "now"),
    "like": ("morning", "evening", "night"),
}
OFTEN = (*("present", "past", "past", "future") * 3, "can", "must", "want")
CHEERFUL = ("write", "buy", "cook", "hear", "play.game", "play.instrument", "help", "eat", "drink")
ASKED_FOR = ("read", "buy", "eat", "drink", "write", "see", "cook", "sell", "hear")  # with "what"
IMPERATIVES = {
    "de": ("read", "open", "close", "buy", "write", "give", "send", "call", "help", "wash"),
    "ta": ("read", "look", "buy", "write", "give", "send", "help", "wash", "wash.cloth"),
}
LYING = ("key", "book", "letter", "shirt", "newspaper", "flower", "lamp", "light.lamp")
SURFACES = ("table", "chair")
CONTAINERS = ("bag", "kitchen", "room", "house", "car")


class Derivations(Phrases):
    """Draws sentences of one or two clauses."""

    def sentence(self, kind: str) -> Sentence:
        """Draw a sentence of a kind: the name of one of the methods below."""
        drawn: Clause | Sentence = getattr(self, kind)()
        s = Sentence("plain", drawn) if isinstance(drawn, Clause) else drawn
        if s.kind == "request":
            return s
        other = s.other and self.dated(s.other)
        return s._replace(main=self.dated(s.main), other=other)

    # Parts of clauses

    def dated(self, clause: Clause) -> Clause:
        """Give "they read" a time that shows its tense, which the verb does not."""
        is_question = clause.question not in ("", "subject")
        if clause.verb != "read" or clause.negative or is_question or clause.tense not in ("present", "past"):
            return clause
        if is_third_person(clause.subject) and not clause.subject.noun.startswith("you"):
            return clause
        times = {"past": ("yesterday", "last week"), "present": ("now", "every day", "evening", "night")}
        suitable = times[clause.tense]
        return clause if clause.time in suitable else clause._replace(time=self.pick(suitable))

    def tense(self, subject: Nominal, tenses: tuple[str, ...]) -> str:
        """Draw a tense; the past if the subject is not used with it."""
        tense = self.pick(tenses)
        return "past" if (tense == "can" and subject.is_joint) or not self.fits(subject, tense) else tense

    def timed(self, clause: Clause, chance: float = 0.45, *, early: float = 0.4) -> Clause:
        """Add a time that goes with the tense, at the end or at the start."""
        if not self.chance(chance):
            return clause
        opens = not clause.question and self.chance(early)
        return clause._replace(time=self.pick(TIMES_OF[clause.tense]), early=opens)

    def action(self, subject: Nominal, tense: str, you: str = "") -> Clause:
        """Draw an action with an object."""
        verb = self.pick(self.everyday)
        return Clause(subject, verb, self.object_of(verb, subject, you), tense=tense)

    def dwelling(self) -> Clause:
        """Draw a person who lives in a town."""
        subject = self.subject()
        if not self.fits(subject, "live"):
            subject = Nominal(self.pick(self.names))
        home = Nominal(self.pick(self.cities))
        if self.chance(0.3):
            home = Nominal("house", self.pick(("this", "a")))
        clause = Clause(subject, "live", place=Place("in", home))
        return clause._replace(time="now") if self.chance(0.3) else clause

    def placed(self) -> Clause:
        """Draw a thing or an animal and its place."""
        nouns = [*(n for n in LYING if n in self.nouns), *self.animals[:2]]
        subject = Nominal(self.pick(nouns), self.pick(("the", "my", "our", "this")))
        is_alive = subject.noun in self.animals
        relation = self.pick(("under", "in", "behind") if is_alive else ("on", "under", "in", "behind"))
        containers = CONTAINERS[1:] if is_alive else CONTAINERS
        landmarks = {"on": SURFACES, "under": SURFACES, "in": containers, "behind": ("house", "door", "car")}
        noun, determiner = self.pick(landmarks[relation]), self.pick(("the", "the", "this", "my"))
        landmark = Nominal(noun, "the" if noun == "door" else determiner)
        tense = self.pick(("present", "past"))
        return Clause(subject, "be", place=Place(relation, landmark), tense=tense, negative=self.chance(0.2))

    def embedded(self) -> Clause:
        """Draw a clause that can be thought, known or said."""
        r = self.below(9)
        if r < 2:
            return self.described(question_chance=0.0)
        if r == 2:
            return self.placed()
        if r == 3:
            tense = self.pick(("present", "past"))
            return Clause(self.subject(), "be", quality=self.pick(STATES), tense=tense)
        if r == 4:
            return self.dwelling()
        subject = self.subject()
        tense = self.tense(subject, ("past", "past", "future", "future", "can", "present", "present"))
        return self.timed(self.action(subject, tense), 0.25, early=0.0)

    # Sentences of one clause

    def transitive(self) -> Clause:
        """Draw "in the evening my mother will read this book", "she did not see the dog"."""
        subject = self.subject()
        clause = self.action(subject, self.tense(subject, OFTEN))
        is_deniable = clause.tense in ("present", "past", "future", "can")
        if not is_deniable or not self.chance(0.15) or is_counted(clause.object):
            return self.timed(clause)
        clause = self.timed(clause._replace(negative=True), 0.25)
        # "not every day" could be read in two ways.
        return clause._replace(time="", early=False) if clause.time == "every day" else clause

    def spoken_to(self) -> Sentence:
        """Draw "children , you must read your book": the address settles what "you" and "your" mean."""
        address = self.pick(self.addresses)
        you = self.you[address]
        subject = Nominal(you)
        if self.chance(0.55):
            clause = self.action(
                subject, self.tense(subject, ("past", "past", "can", "want", "present")), you
            )
            question = self.pick(("whether", "whether", "object", "when", "why", "where"))
            clause = self._ask(clause._replace(question=question))
        else:
            clause = self.action(subject, self.tense(subject, ("present", "past", "can", "must")), you)
        return Sentence("plain", self.timed(clause, 0.25, early=0.0), address=address)

    def _ask(self, clause: Clause) -> Clause:
        if clause.question == "object":
            verbs = [key for key in ASKED_FOR if key in self.everyday]
            return clause._replace(verb=self.pick(verbs), object=Nominal("what"))
        return clause._replace(tense="past") if clause.question == "where" else clause

    def question(self) -> Clause:
        """Draw "who bought the car ?", "what did she read yesterday ?", "does Anna want to drink milk ?"."""
        kind = self.pick(("subject", "object", "when", "why", "where", "whether", "whether"))
        subject = Nominal("who") if kind == "subject" else self.subject()
        if subject.noun in ("i", "we"):
            subject = Nominal(self.pick(("he", "she")))
        if kind == "whether" and not self.fits(subject, "can"):
            subject = Nominal(self.pick(("he", "she")))
        tense = self.tense(subject, ("past", "past", "can", "present") if kind != "when" else ("past",))
        if kind == "whether" and tense == "past" and not self.fits(subject, "whether"):
            tense = "can"
        if kind == "subject" and tense != "can" and not self.fits(subject, "who"):
            tense = "past"
        clause = self._ask(self.action(subject, tense)._replace(question=kind))
        return self.timed(clause, 0.0 if kind == "when" else 0.3)

    def likes_doing(self) -> Clause:
        """Draw "Anna likes to read books in the evening"."""
        subject = self._joint_as_they()
        verb = self.pick(("read", "write", "drink", "eat", "play.game", "play.instrument", "cook", "hear"))
        noun = self.pick(self.objects[verb])
        if NOUNS[noun].is_any("game", "instrument"):
            object_phrase = self.thing(verb, noun, subject)
        else:
            object_phrase = Nominal(noun, plural=bool(NOUNS[noun].plural))
        return self.timed(Clause(subject, verb, object_phrase, tense="like"), 0.4)

    def _joint_as_they(self) -> Nominal:
        """Draw a subject; "they" instead of two names."""
        subject = self.subject()
        return Nominal("they") if subject.is_joint else subject

    def staying(self) -> Clause:
        """Draw "my uncle lives in Berlin", "she worked at the bank", "they will sleep in the room"."""
        if self.chance(0.2):
            return self.dwelling()
        verb = self.pick(self.lasting)
        subject = self.subject()
        tense = self.tense(subject, ("present", "past", "future", "must"))
        place = self.location(verb)
        if verb == "work" and self.chance(0.4):
            place = Place("in", Nominal(self.pick(self.cities)))
        object_phrase = None
        if self.objects[verb]:
            noun = self.pick(self.objects[verb])
            object_phrase = Nominal(noun, "a" if NOUNS[noun].plural else "")
        return self.timed(Clause(subject, verb, object_phrase, place=place, tense=tense))

    def going(self) -> Clause:
        """Draw "we went to the station yesterday", "they will go to London": German "gehen" and "fahren"."""
        subject = self.subject()
        is_far = self.chance(0.4)
        noun = self.pick(self.cities if is_far else self.destinations)
        verb = self.pick(("go", "go", "come"))
        if is_far and verb == "go":
            verb = self.far_verb
        place = Place("to", Nominal(noun, "" if is_far else "the"))
        tense = self.tense(subject, ("present", "past", "future", "must", "want", "can"))
        negative = tense in ("past", "future", "can") and self.chance(0.2)
        if self.chance(0.12) and subject.noun not in ("i", "we"):
            subject = subject if self.fits(subject, "whether") else Nominal("she")
            return self.timed(Clause(subject, verb, place=place, tense="past", question="whether"))
        return self.timed(Clause(subject, verb, place=place, tense=tense, negative=negative))

    def animal(self) -> Clause:
        """Draw "the dog ate the fish in the kitchen", "my cat sleeps at night"."""
        subject = Nominal(self.pick(self.animals), self.pick(("the", "my", "our", "this", "a")))
        tense = self.pick(("present", "past"))
        verb = self.pick(("eat.animal", "drink.animal", "sleep"))
        if verb == "sleep":
            place = Place("in", Nominal(self.pick(ANIMALS[subject.noun].beds), "the"))
            return self.timed(Clause(subject, verb, place=place, tense=tense))
        if verb == "eat.animal":
            noun = self.pick(ANIMALS[subject.noun].food)
        else:
            noun = "milk" if subject.noun == "cat" and self.chance(0.7) else "water"
        determiner = self.pick(("the", "a", "a"))
        object_phrase = Nominal(noun, determiner if NOUNS[noun].plural or determiner == "the" else "")
        return self.timed(Clause(subject, verb, object_phrase, tense=tense))

    def giving(self) -> Clause:
        """Draw "she gave my brother a red flower", "I will send her the letter"."""
        subject = self.subject()
        verb = self.pick(("give", "send"))
        noun = self.pick(self.objects[verb])
        tense = self.tense(subject, ("present", "past", "past", "future", "must", "can"))
        recipient = self.someone(subject, "")
        return self.timed(Clause(subject, verb, self.thing(verb, noun, subject), recipient, tense=tense), 0.3)

    def having(self) -> Clause:
        """Draw "we have two cats", "I do not know him", "she wants a cup", "he likes this song"."""
        subject = self._joint_as_they()
        if not self.fits(subject, "have"):
            subject = Nominal(self.pick(PERSONS))
        verb = self.pick(self.stative)
        tense = self.pick(("present", "past")) if verb == "have" else "present"
        object_phrase = self.object_of(verb, subject)
        if verb == "have" and object_phrase.determiner not in ("a", "") and not is_counted(object_phrase):
            object_phrase = object_phrase._replace(
                determiner="a" if NOUNS[object_phrase.noun].plural else "", plural=False
            )
        if verb == "like" and (object_phrase.determiner == "a" or is_counted(object_phrase)):
            object_phrase = object_phrase._replace(determiner="this", plural=False)
        negative = not is_counted(object_phrase) and self.chance(0.3)
        clause = Clause(subject, verb, object_phrase, tense=tense, negative=negative)
        is_plenty = verb == "have" and object_phrase.plural
        if not negative and not is_plenty and subject.noun not in ("i", "we") and self.chance(0.2):
            return clause._replace(question="whether")
        return clause

    def described(self, *, question_chance: float = 0.25) -> Clause:
        """Draw "this book is interesting", "was the soup hot ?", "my father is not old"."""
        noun = self.pick(self.describable)
        living = is_living(Nominal(noun))
        determiner = self.pick(("my", "our", "his") if noun in self.kin else ("the", "this", "the", "the"))
        plural = bool(NOUNS[noun].plural) and self.language == "de" and self.chance(0.25)
        adjective = self.pick(self.predicated[noun])
        tense = "present" if living else self.pick(("present", "present", "past"))
        clause = Clause(Nominal(noun, determiner, plural=plural), "be", quality=adjective, tense=tense)
        if not living and self.chance(question_chance):
            return clause._replace(question="whether", tense="past")
        return clause._replace(negative=tense == "present" and self.chance(0.25))

    def state(self) -> Clause | Sentence:
        """Draw "I was tired yesterday", "are you happy ?"."""
        subject, state = self.subject(), self.pick(STATES)
        clause = Clause(subject, "be", quality=state, tense=self.pick(("present", "past")))
        if self.chance(0.3):
            address = self.pick(self.addresses)
            question = clause._replace(subject=Nominal(self.you[address]), question="whether")
            return Sentence("plain", question, address=address)
        return clause._replace(negative=True) if self.chance(0.3) else self.timed(clause, 0.6)

    def lying(self) -> Clause:
        """Draw "the key is under the table", "was my book in the bag ?"."""
        clause = self.placed()
        return clause._replace(question="whether", negative=False) if self.chance(0.25) else clause

    def requested(self) -> Sentence:
        """Draw "please read this letter", "please give me the key"."""
        verb = self.pick(IMPERATIVES[self.language])
        subject = Nominal("you.formal" if self.formal else "you.many")
        object_phrase = self.object_of(verb, subject)
        recipient = Nominal(self.pick(("i", "he", "she", "we"))) if verb in ("give", "send") else None
        clause = Clause(subject, verb, object_phrase, recipient)
        if self.chance(0.25):
            clause = clause._replace(time=self.pick(("today", "now")))
        return Sentence("request", clause)

    # Sentences of two clauses

    def reported(self) -> Sentence:
        """Draw "I think that she bought the book", "he said that the film is good"."""
        verb = self.pick(("think", "know.fact", "say"))
        matrix = Nominal(self.pick((*PERSONS[:4], *self.names)))
        inner = self.embedded()
        if inner.subject.noun == matrix.noun and matrix.noun != "i":
            matrix = Nominal("i")
        return Sentence("that", Clause(matrix, verb, tense="past" if verb == "say" else "present"), inner)

    def reasoned(self) -> Sentence:
        """Draw "Anna did not read the letter because she was tired"."""
        subject = self.subject()
        pronoun = pronoun_of(subject)
        if pronoun not in PERSONS:
            pronoun = "they" if subject.is_joint else "i"
            subject = subject if pronoun == "they" else Nominal("i")
        r = self.below(10)
        if r < 2:
            clause = Clause(subject, "sleep", place=self.location("sleep"), tense="past")
        else:
            clause = self.action(subject, "past")
            while is_counted(clause.object) or (r >= 6 and clause.verb not in CHEERFUL):
                clause = self.action(subject, "past")
        clause = clause._replace(negative=2 <= r < 6)
        state = "happy" if r >= 6 else "tired" if r < 2 else self.pick(("tired", "sad"))
        return Sentence("because", clause, Clause(Nominal(pronoun), "be", quality=state, tense="past"))

    def recalled(self) -> Sentence:
        """Draw "the film that we saw yesterday was interesting"."""
        verb = self.pick(tuple(self.recalled_objects))
        noun = self.pick(self.recalled_objects[verb])
        head, tense = Nominal(noun, "the"), self.pick(("present", "past"))
        main = Clause(head, "be", quality=self.pick(self.predicated[noun]), tense=tense)
        inner = self.timed(Clause(self.subject(), verb, head, tense="past"), 0.35, early=0.0)
        return Sentence("relative", main, inner)

    def contrasted(self) -> Sentence:
        """Draw "this bag is old , but it is beautiful", "I bought a car , but she does not like it"."""
        clause = self.described(question_chance=0.0)
        while not _judgement(clause) or is_living(clause.subject) or clause.subject.plural:
            clause = self.described(question_chance=0.0)
        clause = clause._replace(negative=False)
        noun, is_praised = clause.subject.noun, _judgement(clause) == "praise"
        it = Nominal(f"it.{NOUNS[noun].gender}" if self.language == "de" else "it")
        opposite = [
            a
            for a in self.predicated[noun]
            if ADJECTIVES[a].judgement == ("blame" if is_praised else "praise")
            and {a, clause.quality} != {"new", "old.thing"}
        ]
        if self.chance(0.5) or not opposite:
            liking = Clause(Nominal(self.pick((*PERSONS, *self.names))), "like", it, negative=is_praised)
            return Sentence("but", clause._replace(tense="present"), liking)
        return Sentence("but", clause, Clause(it, "be", quality=self.pick(opposite), tense=clause.tense))


def _judgement(clause: Clause) -> str:
    return ADJECTIVES[clause.quality].judgement


def derivations(language: Language, seed: int, count: int) -> Iterable[Sentence]:
    """Yield ``count`` different derivations that English and ``language`` can express."""
    draw = Derivations(language, seed)
    kinds = [name for name, weight in KINDS.items() for _ in range(weight)]
    seen: set[Sentence] = set()
    while len(seen) < count:
        s = draw.sentence(draw.pick(kinds))
        if s not in seen:
            seen.add(s)
            yield s
