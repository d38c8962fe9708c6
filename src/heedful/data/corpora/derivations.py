"""Draw derivations of the phrasebook grammar: the kinds of sentences and their frequencies.

All languages share the kinds of sentences; the vocabulary of a language excludes those it cannot express.
"""

from heedful.data.corpora.clauses import Clauses
from heedful.data.corpora.grammar import Clause, Nominal, Place, Sentence
from heedful.data.corpora.lexicon_english import (
    BEDS,
    BLAME,
    DIETS,
    NOUNS,
    PRAISE,
    STATES,
)
from heedful.data.corpora.phrases import PERSONS, counted

CHEERFUL = ("write", "buy", "cook", "hear", "play.game", "play.instrument", "help", "eat", "drink")
OFTEN = (*("present", "past", "past", "future") * 3, "can", "must", "want")
_NEW_AND_OLD = {"new", "old.thing"}


class Drawing(Clauses):
    """Draws sentences of one or two clauses."""

    def sentence(self, kind: str) -> Sentence:
        """Draw a sentence of a kind: the name of one of the methods below."""
        s: Sentence = getattr(self, kind)()
        other = s.other and self.dated(s.other)
        return s if s.kind == "request" else s._replace(main=self.dated(s.main), other=other)

    def transitive(self) -> Sentence:
        """Draw "in the evening my mother will read this book", "she did not see the dog"."""
        subject = self.subject()
        tense = self.tense(subject, OFTEN)
        clause = self.action(subject, tense)
        deniable = tense in ("present", "past", "future", "can")
        if deniable and self.draw.chance(0.15) and not counted(clause.object):
            clause = self.timed(clause._replace(negative=True), 0.25)
            often = clause.time == "every day"  # "not every day" could be read in two ways
            return Sentence("plain", clause._replace(time="", early=False) if often else clause)
        return Sentence("plain", self.timed(clause))

    def spoken_to(self) -> Sentence:
        """Draw "children , you must read your book": the address settles what "you" and "your" mean."""
        address = self.draw.pick(self.addresses)
        you = self.words.you[address]
        subject = Nominal(you)
        if self.draw.chance(0.55):
            tense = self.tense(subject, ("past", "past", "can", "want", "present"))
            clause = self.action(subject, tense, you)._replace(question=self._question())
            clause = self._ask(clause)
        else:
            tense = self.tense(subject, ("present", "past", "can", "must"))
            clause = self.action(subject, tense, you)
        return Sentence("plain", self.timed(clause, 0.25, early=0.0), address=address)

    def _question(self) -> str:
        return self.draw.pick(("whether", "whether", "object", "when", "why", "where"))

    def _ask(self, clause: Clause) -> Clause:
        if clause.question == "object":
            return clause._replace(verb=self.draw.pick(self.what), object=Nominal("what"))
        if clause.question == "where":
            return clause._replace(tense="past")
        return clause

    def question(self) -> Sentence:
        """Draw "who bought the car ?", "what did she read yesterday ?", "does Anna want to drink milk ?"."""
        kind = self.draw.pick(("subject", "object", "when", "why", "where", "whether", "whether"))
        subject = Nominal("who") if kind == "subject" else self.subject()
        if subject.noun in ("i", "we"):
            subject = Nominal(self.draw.pick(("he", "she")))
        if kind == "whether" and not self.fits(subject, "can"):
            subject = Nominal(self.draw.pick(("he", "she")))
        tense = self.tense(subject, ("past", "past", "can", "present") if kind != "when" else ("past",))
        if kind == "whether" and tense == "past" and not self.fits(subject, "whether"):
            tense = "can"
        tense = tense if kind != "subject" or self.fits(subject, "who") or tense == "can" else "past"
        clause = self._ask(self.action(subject, tense)._replace(question=kind))
        return Sentence("plain", self.timed(clause, 0.0 if kind == "when" else 0.3))

    def likes_doing(self) -> Sentence:
        """Draw "Anna likes to read books in the evening"."""
        subject = self.subject()
        if " and " in subject.noun:
            subject = Nominal("they")
        verb = self.draw.pick(
            ("read", "write", "drink", "eat", "play.game", "play.instrument", "cook", "hear")
        )
        noun = self.draw.pick(self.objects[verb])
        thing = self.thing(verb, noun, subject) if NOUNS[noun][1][0] in ("game", "instrument") else None
        thing = thing or Nominal(noun, plural=NOUNS[noun][0] != "-")
        return Sentence("plain", self.timed(Clause(subject, verb, thing, tense="like"), 0.4))

    def staying(self) -> Sentence:
        """Draw "my uncle lives in Berlin", "she worked at the bank", "they will sleep in the room"."""
        if self.draw.chance(0.2):
            return Sentence("plain", self.dwelling())
        verb = self.draw.pick(self.lasting)
        subject = self.subject()
        tense = self.tense(subject, ("present", "past", "future", "must"))
        place = self.location(verb)
        if verb == "work" and self.draw.chance(0.4):
            place = Place("in", Nominal(self.draw.pick(self.words.cities)))
        noun = self.draw.pick(self.objects[verb]) if self.objects[verb] else ""
        mass = noun and NOUNS[noun][0] == "-"
        thing = Nominal(noun, "" if mass else "a") if noun else None
        clause = Clause(subject, verb, thing, place=place, tense=tense)
        return Sentence("plain", self.timed(clause))

    def going(self) -> Sentence:
        """Draw "we went to the station yesterday", "they will go to London": German "gehen" and "fahren"."""
        subject = self.subject()
        far = self.draw.chance(0.4)
        noun = self.draw.pick(self.words.cities if far else self.destinations)
        verb = self.draw.pick(("go", "go", "come"))
        if far and verb == "go" and "travel" in self.words.verbs:
            verb = "travel"
        place = Place("to", Nominal(noun, "" if far else "the"))
        tense = self.tense(subject, ("present", "past", "future", "must", "want", "can"))
        negative = tense in ("past", "future", "can") and self.draw.chance(0.2)
        if self.draw.chance(0.12) and subject.noun not in ("i", "we"):
            subject = subject if self.fits(subject, "whether") else Nominal("she")
            asked = Clause(subject, verb, place=place, tense="past", question="whether")
            return Sentence("plain", self.timed(asked))
        return Sentence(
            "plain", self.timed(Clause(subject, verb, place=place, tense=tense, negative=negative))
        )

    def animal(self) -> Sentence:
        """Draw "the dog ate the fish in the kitchen", "my cat sleeps at night"."""
        subject = Nominal(self.draw.pick(self.animals), self.draw.pick(("the", "my", "our", "this", "a")))
        tense = self.draw.pick(("present", "past"))
        verb = self.draw.pick(("eat.animal", "drink.animal", "sleep"))
        if verb == "sleep":
            place = Place("in", Nominal(self.draw.pick(BEDS[subject.noun]), "the"))
            return Sentence("plain", self.timed(Clause(subject, verb, place=place, tense=tense)))
        if verb == "eat.animal":
            noun = self.draw.pick(DIETS[subject.noun])
        else:
            noun = "milk" if subject.noun == "cat" and self.draw.chance(0.7) else "water"
        determiner = self.draw.pick(("the", "a", "a"))
        if determiner == "a" and NOUNS[noun][0] == "-":
            determiner = ""
        thing = Nominal(noun, determiner)
        return Sentence("plain", self.timed(Clause(subject, verb, thing, tense=tense)))

    def giving(self) -> Sentence:
        """Draw "she gave my brother a red flower", "I will send her the letter"."""
        subject = self.subject()
        verb = self.draw.pick(("give", "send"))
        noun = self.draw.pick(self.objects[verb])
        tense = self.tense(subject, ("present", "past", "past", "future", "must", "can"))
        recipient = self.someone(subject, "")
        clause = Clause(subject, verb, self.thing(verb, noun, subject), recipient, tense=tense)
        return Sentence("plain", self.timed(clause, 0.3))

    def having(self) -> Sentence:
        """Draw "we have two cats", "I do not know him", "she wants a cup", "he likes this song"."""
        subject = self.subject()
        if " and " in subject.noun:
            subject = Nominal("they")
        if not self.fits(subject, "have"):
            subject = Nominal(self.draw.pick(PERSONS))
        verb = self.draw.pick(self.stative)
        tense = self.draw.pick(("present", "past")) if verb == "have" else "present"
        thing = self.object_of(verb, subject)
        if verb == "have" and (thing.determiner not in ("a", "") and not counted(thing)):
            thing = thing._replace(determiner="a" if NOUNS[thing.noun][0] != "-" else "", plural=False)
        if verb == "like" and (thing.determiner == "a" or counted(thing)):
            thing = thing._replace(determiner="this", plural=False)
        negative = not counted(thing) and self.draw.chance(0.3)
        clause = Clause(subject, verb, thing, tense=tense, negative=negative)
        plenty = verb == "have" and thing.plural
        if not negative and not plenty and subject.noun not in ("i", "we") and self.draw.chance(0.2):
            clause = clause._replace(question="whether")
        return Sentence("plain", clause)

    def quality(self) -> Sentence:
        """Draw "this book is interesting", "was the soup hot ?", "my father is not old"."""
        return Sentence("plain", self.described())

    def state(self) -> Sentence:
        """Draw "I was tired yesterday", "are you happy ?"."""
        subject, state = self.subject(), self.draw.pick(STATES)
        tense = self.draw.pick(("present", "past"))
        clause = Clause(subject, "be", quality=state, tense=tense)
        if self.draw.chance(0.3):
            address = self.draw.pick(self.addresses)
            asked = clause._replace(subject=Nominal(self.words.you[address]), question="whether")
            return Sentence("plain", asked, address=address)
        if self.draw.chance(0.3):
            return Sentence("plain", clause._replace(negative=True))
        return Sentence("plain", self.timed(clause, 0.6))

    def lying(self) -> Sentence:
        """Draw "the key is under the table", "was my book in the bag ?"."""
        clause = self.placed()
        if self.draw.chance(0.25):
            clause = clause._replace(question="whether", negative=False)
        return Sentence("plain", clause)

    # Sentences of two clauses

    def reported(self) -> Sentence:
        """Draw "I think that she bought the book", "he said that the film is good"."""
        verb = self.draw.pick(("think", "know.fact", "say"))
        matrix = Nominal(self.draw.pick((*PERSONS[:4], *self.names)))
        inner = self.embedded()
        if inner.subject.noun == matrix.noun and matrix.noun != "i":
            matrix = Nominal("i")
        tense = "past" if verb == "say" else "present"
        return Sentence("that", Clause(matrix, verb, tense=tense), inner)

    def reasoned(self) -> Sentence:
        """Draw "Anna did not read the letter because she was tired"."""
        subject = self.subject()
        own = self.words.names.get(subject.noun, subject.noun)
        if own not in PERSONS:
            own = "they" if " and " in own else "i"
            subject = subject if own == "they" else Nominal("i")
        r = self.draw.below(10)
        if r < 2:
            clause = Clause(subject, "sleep", place=self.location("sleep"), tense="past")
        else:
            clause = self.action(subject, "past")
        while r >= 2 and (counted(clause.object) or (r >= 6 and clause.verb not in CHEERFUL)):
            clause = self.action(subject, "past")
        clause = clause._replace(negative=2 <= r < 6)
        state = "happy" if r >= 6 else "tired" if r < 2 else self.draw.pick(("tired", "sad"))
        return Sentence("because", clause, Clause(Nominal(own), "be", quality=state, tense="past"))

    def recalled(self) -> Sentence:
        """Draw "the film that we saw yesterday was interesting"."""
        verb = self.draw.pick(tuple(self.made))
        noun = self.draw.pick(self.made[verb])
        adjectives = [a for a in self.suits[noun] if self.words.quality(a, False)]
        head = Nominal(noun, "the")
        tense = self.draw.pick(("present", "past"))
        main = Clause(head, "be", quality=self.draw.pick(adjectives), tense=tense)
        inner = self.timed(Clause(self.subject(), verb, head, tense="past"), 0.35, early=0.0)
        return Sentence("relative", main, inner)

    def contrasted(self) -> Sentence:
        """Draw "this bag is old , but it is beautiful", "I bought a car , but she does not like it"."""
        clause = self.described(asked=0.0)
        while clause.quality not in (*PRAISE, *BLAME) or self.living(clause.subject) or clause.subject.plural:
            clause = self.described(asked=0.0)
        clause = clause._replace(negative=False)
        noun, praised = clause.subject.noun, clause.quality in PRAISE
        it = Nominal(self.words.antecedent(noun))
        opposite = [a for a in self.suits[noun] if a in (BLAME if praised else PRAISE)]
        opposite = [
            a for a in opposite if self.words.quality(a, False) and {a, clause.quality} != _NEW_AND_OLD
        ]
        if self.draw.chance(0.5) or not opposite:
            who = Nominal(self.draw.pick((*PERSONS, *self.names)))
            other = Clause(who, "like", it, negative=praised)
            return Sentence("but", clause._replace(tense="present"), other)
        return Sentence("but", clause, Clause(it, "be", quality=self.draw.pick(opposite), tense=clause.tense))

    def requested(self) -> Sentence:
        """Draw "please read this letter", "please give me the key"."""
        verb = self.draw.pick(self.words.imperatives)
        subject = Nominal("you.formal") if "you.formal" in self.words.you.values() else Nominal("you.many")
        noun = self.draw.pick(self.objects[verb])
        if {"person", "kin"} & set(NOUNS[noun][1]):
            thing = self.someone(subject, "")
        else:
            thing = self.thing(verb, noun, subject)
        recipient = Nominal(self.draw.pick(("i", "he", "she", "we"))) if verb in ("give", "send") else None
        clause = Clause(subject, verb, thing, recipient)
        if self.draw.chance(0.25):
            clause = clause._replace(time=self.draw.pick(("today", "now")))
        return Sentence("request", clause)
