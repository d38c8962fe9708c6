"""Draw clauses: subject, verb, object or quality, place, tense and time."""

from heedful.data.corpora.english import third_person
from heedful.data.corpora.grammar import Clause, Nominal, Place
from heedful.data.corpora.lexicon_english import (
    CONTAINERS,
    LYING,
    NOUNS,
    STATES,
    SURFACES,
    TIMES_OF,
)
from heedful.data.corpora.phrases import Phrases


class Clauses(Phrases):
    """Draws clauses from the noun phrases."""

    def dated(self, clause: Clause) -> Clause:
        """Give "they read" a time that shows its tense, which the verb does not."""
        asked = clause.question not in ("", "subject")
        if clause.verb != "read" or clause.negative or asked or clause.tense not in ("present", "past"):
            return clause
        if third_person(clause.subject) and not clause.subject.noun.startswith("you"):
            return clause
        times = (
            ("yesterday", "last week") if clause.tense == "past" else ("now", "every day", "evening", "night")
        )
        return clause if clause.time in times else clause._replace(time=self.draw.pick(times))

    def tense(self, subject: Nominal, tenses: tuple[str, ...]) -> str:
        """Draw a tense; the past if the subject is not used with it."""
        tense = self.draw.pick(tenses)
        joined = tense == "can" and " and " in subject.noun
        return "past" if joined or not self.fits(subject, tense) else tense

    def timed(self, clause: Clause, chance: float = 0.45, *, early: float = 0.4) -> Clause:
        """Add a time that goes with the tense, at the end or at the start."""
        if not self.draw.chance(chance):
            return clause
        first = not clause.question and self.draw.chance(early)
        return clause._replace(time=self.draw.pick(TIMES_OF[clause.tense]), early=first)

    def action(self, subject: Nominal, tense: str, you: str = "") -> Clause:
        """Draw an action with an object."""
        verb = self.draw.pick(self.everyday)
        return Clause(subject, verb, self.object_of(verb, subject, you), tense=tense)

    def dwelling(self) -> Clause:
        """Draw a person who lives in a town."""
        subject = self.subject()
        if not self.fits(subject, "live"):
            subject = Nominal(self.draw.pick(self.names))
        where = Nominal(self.draw.pick(self.words.cities))
        if self.draw.chance(0.3):
            where = Nominal("house", self.draw.pick(("this", "a")))
        clause = Clause(subject, "live", place=Place("in", where))
        return clause._replace(time="now") if self.draw.chance(0.3) else clause

    def described(self, *, asked: float = 0.25) -> Clause:
        """Draw a noun and one of its qualities."""
        noun = self.draw.pick(self.describable)
        living = self.living(Nominal(noun))
        determiner = self.draw.pick(
            ("my", "our", "his") if noun in self.kin else ("the", "this", "the", "that")
        )
        determiner = "the" if determiner == "that" else determiner
        plural = NOUNS[noun][0] != "-" and self.words.quality("", True) and self.draw.chance(0.25)
        adjectives = [a for a in self.suits[noun] if self.words.quality(a, False)]
        adjective = self.draw.pick(adjectives)
        tense = "present" if living else self.draw.pick(("present", "present", "past"))
        subject = Nominal(noun, determiner, plural=plural)
        clause = Clause(subject, "be", quality=adjective, tense=tense)
        if not living and self.draw.chance(asked):
            return clause._replace(question="whether", tense="past")
        return clause._replace(negative=tense == "present" and self.draw.chance(0.25))

    def placed(self) -> Clause:
        """Draw a thing or an animal and its place."""
        nouns = [*(n for n in LYING if n in self.words.nouns), *self.animals[:2]]
        subject = Nominal(self.draw.pick(nouns), self.draw.pick(("the", "my", "our", "this")))
        alive = subject.noun in self.animals
        relation = self.draw.pick(("under", "in", "behind") if alive else ("on", "under", "in", "behind"))
        inside = CONTAINERS[1:] if alive else CONTAINERS
        grounds = {"on": SURFACES, "under": SURFACES, "in": inside, "behind": ("house", "door", "car")}
        ground = Nominal(self.draw.pick(grounds[relation]), self.draw.pick(("the", "the", "this", "my")))
        if ground.noun == "door":
            ground = ground._replace(determiner="the")
        tense = self.draw.pick(("present", "past"))
        negative = self.draw.chance(0.2)
        return Clause(subject, "be", place=Place(relation, ground), tense=tense, negative=negative)

    def embedded(self) -> Clause:
        """Draw a clause that can be thought, known or said."""
        r = self.draw.below(9)
        if r < 2:
            return self.described(asked=0.0)
        if r == 2:
            return self.placed()
        if r == 3:
            tense = self.draw.pick(("present", "past"))
            return Clause(self.subject(), "be", quality=self.draw.pick(STATES), tense=tense)
        if r == 4:
            return self.dwelling()
        subject = self.subject()
        inner = self.action(
            subject, self.tense(subject, ("past", "past", "future", "future", "can", "present", "present"))
        )
        return self.timed(inner, 0.25, early=0.0)
