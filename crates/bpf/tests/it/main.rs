//! The integration tests, as one program: each module tests one subject.

mod capabilities;
mod common;
mod dropping;
mod events;
mod gateway;
mod generator;
mod matching;
mod metadata;
mod redirecting;
mod reflecting;
mod steering;
mod tracing;
