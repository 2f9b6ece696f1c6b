//! What is on the disk is whole, and belongs to one run.

use super::*;

/// A folder that goes with the test.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("ringside-lab-{}-{name}", std::process::id()));
        _ = fs::remove_dir_all(&path);
        Self(path)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        _ = fs::remove_dir_all(&self.0);
    }
}

fn text(text: &str) -> Text {
    Text {
        name: "my.toml".to_owned(),
        text: text.to_owned(),
    }
}

fn failed(round: u32, cell: usize) -> Turn {
    Turn {
        round,
        cell,
        outcome: Outcome::Failed("no reason".to_owned()),
    }
}

fn error<T>(result: Result<T>) -> String {
    format!("{:#}", result.err().expect("an error"))
}

#[test]
fn turns_come_back_by_the_same_file_only() {
    let scratch = Scratch::new("resume");
    let path = scratch.0.join("run");
    let mut folder = Folder::create(&path, &text("a\nb\nc\n"), &Overrides::default()).unwrap();
    folder.add(failed(0, 1)).unwrap();
    folder.add(failed(2, 0)).unwrap();
    assert!(
        error(Folder::resume(&path, &text("a\nb\nc\n"), &Overrides::default()))
            .contains("another process runs the lab")
    );
    drop(folder);
    let begun = Folder::create(&path, &text("a\n"), &Overrides::default());
    assert!(error(begun).contains("go on with it by --resume"));
    let other = Folder::resume(&path, &text("a\nB\nc\n"), &Overrides::default());
    assert!(error(other).contains("they differ from line 2 on"));
    let folder = Folder::resume(&path, &text("a\nb\nc\n"), &Overrides::default()).unwrap();
    assert!(folder.has(0, 1) && folder.has(2, 0) && !folder.has(0, 0));
    assert_eq!(folder.turns.len(), 2);
    drop(folder);
    remove(&path).unwrap();
    assert!(!path.exists());
}

#[test]
fn a_lock_ends_though_a_child_has_its_descriptor() {
    let scratch = Scratch::new("child");
    fs::create_dir_all(&scratch.0).unwrap();
    let of_parent = lock(&scratch.0).unwrap();
    let of_child = of_parent.0.try_clone().unwrap();
    assert!(lock(&scratch.0).is_err());
    drop(of_parent);
    lock(&scratch.0).unwrap();
    drop(of_child);
}

#[test]
fn what_a_kill_left_half_written_is_not_read() {
    let scratch = Scratch::new("half");
    let mut folder = Folder::create(&scratch.0, &text("a"), &Overrides::default()).unwrap();
    folder.add(failed(0, 0)).unwrap();
    fs::write(scratch.0.join(TURNS).join("0001-002.part"), b"{\"round\":").unwrap();
    assert_eq!(Folder::look(&scratch.0).unwrap().turns.len(), 1);
    fs::write(scratch.0.join(TURNS).join("0001-003.json"), b"{\"round\":").unwrap();
    assert!(error(Folder::look(&scratch.0)).contains("0001-003.json, which ringside wrote"));
}

#[test]
fn a_folder_of_something_else_stays_as_it_is() {
    let scratch = Scratch::new("foreign");
    fs::create_dir_all(&scratch.0).unwrap();
    fs::write(scratch.0.join("mine"), "x").unwrap();
    assert!(
        error(Folder::create(&scratch.0, &text("a"), &Overrides::default()))
            .contains("is not empty; name another one with --into")
    );
    assert!(error(Folder::look(&scratch.0)).contains("is no folder of a run"));
    assert!(error(remove(&scratch.0)).contains("is no folder of a run"));
    assert!(scratch.0.join("mine").exists());
}

#[test]
fn a_run_goes_on_with_the_options_that_it_was_begun_with() {
    let scratch = Scratch::new("options");
    let lab = "[[host]]\nname = \"a\"\n[[host]]\nname = \"b\"\n[[link]]\nends = [\"a\", \"b\"]\n\
               [[probe]]\nname = \"p\"\nfrom = \"a\"\nto = \"b\"\nwith = \"udp\"\n\
               [[probe]]\nname = \"q\"\nfrom = \"a\"\nto = \"b\"\nwith = \"udp\"\n";
    let begun = Overrides {
        rounds: Some(3),
        turn: None,
        only: vec!["q".to_owned()],
    };
    drop(Folder::create(&scratch.0, &text(lab), &begun).unwrap());
    for again in [&begun, &Overrides::default()] {
        let folder = Folder::resume(&scratch.0, &text(lab), again).unwrap();
        let plan = folder.plan(&text(lab)).unwrap();
        assert_eq!((plan.rounds, plan.probes.len()), (3, 1));
        assert_eq!(plan.probes[0].name, "q");
    }
    let state = state(&scratch.0).unwrap();
    assert_eq!(state.of, 6, "one probe, two kinds of times, three rounds");
    let other = Overrides {
        rounds: Some(2),
        ..Overrides::default()
    };
    let said = error(Folder::resume(&scratch.0, &text(lab), &other));
    assert!(
        said.contains("was begun with --rounds 3 --only q, and this is --rounds 2"),
        "{said}"
    );
}
