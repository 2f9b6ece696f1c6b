//! Which of the machine's `ringside` threads and processes a task is: all of them have that name.

use std::collections::HashMap;
use std::fs;
use std::path::Path;

/// The name of a thread that has none of its own, in as many bytes as the kernel keeps of it.
const OWN: &str = "ringside";

/// What tasks are called among the disturbers.
#[derive(Debug)]
pub(super) struct TaskNames {
    /// The thread that reads what the tracing programs tell.
    recorder: u32,
    /// Of the tasks that are called [`OWN`].
    known: HashMap<u32, String>,
}

impl TaskNames {
    /// The calling thread is the recorder.
    pub(super) fn of_recorder() -> Self {
        let id = rustix::thread::gettid().as_raw_nonzero().get();
        Self {
            recorder: u32::try_from(id).unwrap_or(0),
            known: HashMap::new(),
        }
    }

    /// What a task is called, by its number and the kernel's name of it.
    pub(super) fn of(&mut self, id: u32, name: String) -> String {
        if id == self.recorder {
            return format!("{name} (the recorder of this trace)");
        }
        if name != OWN {
            return name;
        }
        self.known.entry(id).or_insert_with(|| told(id)).clone()
    }
}

/// By what it was started with. One that has ended meanwhile is not known any more.
fn told(id: u32) -> String {
    if Path::new(&format!("/proc/self/task/{id}")).exists() {
        return format!("{OWN} (thread {id} of this program)");
    }
    let line = fs::read(format!("/proc/{id}/cmdline")).unwrap_or_default();
    let mut words = line.split(|byte| *byte == 0).skip(1).map(String::from_utf8_lossy);
    match words.find(|word| !word.is_empty() && !word.starts_with('-')) {
        Some(command) => format!("{OWN} {command}"),
        None => OWN.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use std::process::{Child, Command, Stdio};

    use super::*;

    struct Sleeper(Child);

    impl Drop for Sleeper {
        fn drop(&mut self) {
            _ = self.0.kill();
            _ = self.0.wait();
        }
    }

    #[test]
    fn threads_and_processes_of_one_name_are_told_apart() {
        let mut names = TaskNames::of_recorder();
        let recorder = names.recorder;
        assert_eq!(names.of(recorder, OWN.into()), "ringside (the recorder of this trace)");
        assert_eq!(names.of(1, "hog".into()), "hog");
        let own = std::process::id();
        assert_ne!(own, recorder, "tests run in threads of their own");
        assert_eq!(
            names.of(own, OWN.into()),
            format!("ringside (thread {own} of this program)")
        );
        let sleeper = Command::new("sleep").arg("60").stdin(Stdio::null()).spawn();
        let sleeper = Sleeper(sleeper.expect("starts"));
        // Until it is another program it is this one.
        while fs::read(format!("/proc/{}/cmdline", sleeper.0.id())).is_ok_and(|line| !line.starts_with(b"sleep")) {
            ringside_netlab::testing::pause();
        }
        assert_eq!(names.of(sleeper.0.id(), OWN.into()), "ringside 60");
        assert_eq!(names.of(u32::MAX, OWN.into()), OWN, "gone");
    }
}
