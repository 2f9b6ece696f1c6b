//! What could not be undone, for whoever asked for what was done: a lab, here or from another machine.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ringside_nic::changes::{Outcome, Restored};

/// Sentences, each once. What is added by one handle is seen by all that were made of it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Left {
    all: Arc<Mutex<Vec<String>>>,
    /// Where it is left; nothing where that is clear.
    place: String,
}

impl Left {
    /// The same, for what is left at a place.
    pub(crate) fn at(&self, place: impl Into<String>) -> Self {
        Self {
            all: Arc::clone(&self.all),
            place: place.into(),
        }
    }

    fn all(&self) -> MutexGuard<'_, Vec<String>> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn add(&self, sentences: impl IntoIterator<Item = String>) {
        let mut all = self.all();
        for sentence in sentences {
            let sentence = match self.place.as_str() {
                "" => sentence,
                place => format!("{place}: {sentence}"),
            };
            if !all.contains(&sentence) {
                all.push(sentence);
            }
        }
    }

    /// Takes what was added, each once.
    pub(crate) fn take(&self) -> Vec<String> {
        std::mem::take(&mut *self.all())
    }
}

/// A sentence for each change that is not as it was before, with what to do by hand.
pub(crate) fn sentences(restored: &[Restored]) -> Vec<String> {
    restored.iter().filter_map(sentence).collect()
}

fn sentence(restored: &Restored) -> Option<String> {
    let before = &restored.change.before;
    match restored.outcome {
        Outcome::Failed { .. } => Some(format!(
            "{restored}; `ringside lab clean` there tries again, or set it to {before} by hand"
        )),
        Outcome::ChangedSince { .. } => Some(format!("{restored}; set it to {before} by hand if nobody wants it so")),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_is_told_once_with_its_place() {
        let left = Left::default();
        let there = left.at("the host far");
        for _ in 0..2 {
            there.add(["eth0: RPS: not restored".to_owned()]);
        }
        left.add(["a queue".to_owned()]);
        assert_eq!(there.take(), ["the host far: eth0: RPS: not restored", "a queue"]);
        assert_eq!(left.take(), [""; 0]);
    }
}
