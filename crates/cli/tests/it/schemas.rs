//! What `--json` writes and what running commands answer conforms to the schemas that
//! `ringside schema` prints.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use crate::common::live::Folder;
use crate::common::{Running, lab, ringside};
use ringside_netlab::testing::is_root;
use serde_json::{Value, json};

/// A folder for documents and schemas, removed at the end.
struct Documents(PathBuf);

impl Documents {
    fn new(tag: &str) -> Self {
        let name = format!("ringside-{tag}-{}", std::process::id());
        let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
        fs::create_dir_all(&folder).unwrap();
        Self(folder)
    }

    /// Validates a document by the schema that it names. Properties that the schema does not name
    /// are violations.
    fn validate(&self, document: &Value) -> Result<(), String> {
        let name = document["schema"].as_str().expect("a schema");
        let kind = name.strip_prefix("ringside.").and_then(|rest| rest.strip_suffix("/1"));
        let mut command = Command::new(env!("CARGO_BIN_EXE_ringside"));
        command.args(["schema", kind.unwrap_or(name)]);
        let [schema, path] = ["schema", "document"].map(|name| self.0.join(name));
        fs::write(&schema, Running::new(command).end().good().out).unwrap();
        fs::write(&path, document.to_string()).unwrap();
        let done = Command::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../scripts/validate-json"))
            .arg("--closed")
            .args([schema, path])
            .output()
            .expect("python3");
        match done.status.success() {
            true => Ok(()),
            false => Err(format!("{done:#?} of {document:#}")),
        }
    }
}

impl Drop for Documents {
    fn drop(&mut self) {
        _ = fs::remove_dir_all(&self.0);
    }
}

#[test]
fn documents_of_all_kinds_conform_to_their_schemas() {
    if !is_root() {
        return;
    }
    let (lab, folder, documents) = (lab("schemas", 1), Folder::new(), Documents::new("schemas"));
    let (_receiver, mut asker) = folder.start_asked(&lab.b, "echo {} --wait poll");
    let ping = format!("ping {{}} --to {} --count 3 --json", lab.b.ipv4);
    for (end, line) in [
        (&lab.a, ping.as_str()),
        (&lab.b, "caps {} --json"),
        (&lab.b, "doctor {} --no-veth --json"),
        (&lab.b, "tune {} --json"),
        (&lab.b, "tune {} --offload rx-gro=off --dry-run --json"),
        (&lab.b, "top {} --once --interval 100ms --json"),
    ] {
        let mut command = ringside(end, line);
        command.env("RINGSIDE_STATE_DIR", &folder.0);
        // The exit status of a doctor is what it found.
        let document = Running::new(command).end().json();
        documents
            .validate(&document)
            .unwrap_or_else(|why| panic!("{line}: {why}"));
    }
    let snapshot = serde_json::from_str(&asker.ask_line()).unwrap();
    documents.validate(&snapshot).unwrap();
}

#[test]
fn a_document_without_a_published_schema_is_refused() {
    let folder = Documents::new("schemas-none");
    let validate = || {
        let scripts = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scripts");
        let mut command = Command::new(format!("{scripts}/validate-results"));
        let done = command.arg(&folder.0).output().expect("bash");
        assert!(!done.status.success(), "there is not a result of each kind");
        String::from_utf8(done.stdout).unwrap()
    };
    fs::write(folder.0.join("ringside.tune-1-7-0.json"), "{}").unwrap();
    let printed = validate();
    assert!(!printed.contains("has no published schema"), "{printed}");
    for schema in ["ringside.odd-1", "none"] {
        fs::write(folder.0.join(format!("{schema}-7-1.json")), "{}").unwrap();
        let printed = validate();
        assert!(
            printed.contains(&format!("{schema} has no published schema: {{}}")),
            "{printed}"
        );
    }
}

#[test]
fn a_property_that_is_missing_or_without_a_place_in_the_schema_is_found() {
    if !is_root() {
        return;
    }
    let (lab, documents) = (lab("schemas-odd", 1), Documents::new("schemas-odd"));
    let tuned = Running::new(ringside(&lab.a, "tune {} --json")).end().good().json();
    documents.validate(&tuned).unwrap();
    let found = |change: &dyn Fn(&mut Value)| {
        let mut changed = tuned.clone();
        change(&mut changed);
        documents.validate(&changed).unwrap_err()
    };
    let added = found(&|tuned| tuned["settings"][0]["unit"] = json!("us"));
    assert!(added.contains("'unit' was unexpected"), "{added}");
    let missing = found(&|tuned| drop(tuned.as_object_mut().unwrap().remove("mode")));
    assert!(missing.contains("'mode' is a required property"), "{missing}");
}
