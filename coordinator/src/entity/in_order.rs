//! Puts answers into the order of what they answer.

use std::collections::VecDeque;

/// Answers that may come in another order than what they answer was asked in.
#[derive(Debug)]
pub(super) struct InOrder<T> {
    /// From the oldest that was asked and not given out, with the answers that came.
    open: VecDeque<Option<T>>,
    /// How many were given out.
    given: u64,
}

impl<T> Default for InOrder<T> {
    fn default() -> Self {
        Self { open: VecDeque::new(), given: 0 }
    }
}

impl<T> InOrder<T> {
    /// Takes note of a question, and gives its number.
    pub(super) fn asked(&mut self) -> u64 {
        self.open.push_back(None);
        self.given + self.open.len() as u64 - 1
    }

    /// Takes in the answer to a question, which comes once.
    pub(super) fn answered(&mut self, question: u64, answer: T) {
        let place = question.checked_sub(self.given).and_then(|place| usize::try_from(place).ok());
        if let Some(open) = place.and_then(|place| self.open.get_mut(place)) {
            *open = Some(answer);
        }
    }

    /// The answer to the oldest question, once it is there.
    pub(super) fn next(&mut self) -> Option<T> {
        let answer = self.open.front_mut()?.take()?;
        self.open.pop_front();
        self.given += 1;
        Some(answer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_later_answer_waits_for_the_earlier_ones() {
        let mut answers = InOrder::default();
        let [first, second] = [answers.asked(), answers.asked()];
        answers.answered(second, "second");
        assert_eq!(answers.next(), None);
        let third = answers.asked();
        answers.answered(first, "first");
        assert_eq!([answers.next(), answers.next(), answers.next()], [Some("first"), Some("second"), None]);
        answers.answered(third, "third");
        answers.answered(first, "once more");
        assert_eq!([answers.next(), answers.next()], [Some("third"), None]);
    }
}
