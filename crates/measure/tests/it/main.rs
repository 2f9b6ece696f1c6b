//! The integration tests, as one program: each module tests one subject.

mod known_answers;
mod oracle;
