//! The published JSON Schemas are those of the types, and every example conforms to them.

use std::fs;
use std::process::{self, Command};
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde_json::{Value, json};

use super::example::{self, example};
use super::{Document, Outcome};
use crate::live::{self, Snapshot};

/// Environment variable that has the tests write the schemas instead of comparing them.
const WRITE: &str = "RINGSIDE_SCHEMAS";

/// Returns the path of a file below the root of the workspace.
fn workspace(path: &str) -> String {
    format!("{}/../../{path}", env!("CARGO_MANIFEST_DIR"))
}

/// Compares a published schema with that of a type.
fn is_published<T: JsonSchema>(name: &str, published: &str) {
    let generator = SchemaSettings::draft2020_12().for_serialize().into_generator();
    let mut schema = generator.into_root_schema_for::<T>();
    schema.insert("$id".into(), format!("urn:{}", name.replace(['.', '/'], ":")).into());
    schema.insert("title".into(), name.into());
    let text = serde_json::to_string_pretty(&schema).unwrap() + "\n";
    let path = workspace(&format!("crates/measure/schemas/{}.json", name.replace('/', "-")));
    if std::env::var(WRITE).as_deref() == Ok("write") {
        fs::write(path, text).unwrap();
        return;
    }
    assert_eq!(
        text, published,
        "{path}: run this test with {WRITE}=write, and look at the difference"
    );
}

#[test]
fn schemas_are_those_of_the_types() {
    is_published::<Document>(super::SCHEMA, super::JSON_SCHEMA);
    is_published::<Snapshot>(live::SCHEMA, live::JSON_SCHEMA);
}

/// Returns what a validator finds in documents.
fn violations_in(schema: &str, paths: &[String]) -> Result<(), String> {
    let name = format!("crates/measure/schemas/{}.json", schema.replace('/', "-"));
    let done = Command::new(workspace("scripts/validate-json"))
        .arg(workspace(&name))
        .args(paths)
        .output()
        .expect("python3");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    match done.status.success() {
        true => Ok(()),
        false => Err(text(&done.stdout) + &text(&done.stderr)),
    }
}

/// As [`violations_in`], of documents that are in no file.
fn violations(schema: &str, documents: &[Value]) -> Result<(), String> {
    static CALLS: AtomicU32 = AtomicU32::new(0);
    let name = format!("ringside-json-{}-{}", process::id(), CALLS.fetch_add(1, Relaxed));
    let folder = std::env::temp_dir().join(name);
    fs::create_dir(&folder).unwrap();
    let mut paths = Vec::new();
    for (number, document) in documents.iter().enumerate() {
        let path = format!("{}/{number}.json", folder.display());
        fs::write(&path, document.to_string()).unwrap();
        paths.push(path);
    }
    let found = violations_in(schema, &paths);
    fs::remove_dir_all(&folder).unwrap();
    found
}

#[test]
fn every_example_conforms_to_the_schema() {
    let run = example();
    let outcomes = [
        Outcome::Compare(super::tests::comparison()),
        Outcome::Delay(example::delays()),
        Outcome::Sweep(Box::new(example::sweep())),
        Outcome::Trace(Box::new(example::trace())),
        Outcome::Lab(Box::new(super::lab::tests::lab())),
        Outcome::Steer(Box::new(example::steer())),
    ];
    let documents = outcomes.map(|result| Document { result, ..run.clone() });
    let documents: Vec<Value> = documents
        .iter()
        .chain([&run])
        .map(|document| serde_json::to_value(document).unwrap())
        .collect();
    violations(super::SCHEMA, &documents).unwrap();
    let snapshot = serde_json::to_value(live::tests::snapshot()).unwrap();
    violations(live::SCHEMA, &[snapshot]).unwrap();
}

/// Those of the documentation, and those that tests of reports read.
#[test]
fn recorded_results_conform_to_the_schema() {
    let folders = ["docs/lab", "crates/cli/tests/it/report", "crates/measure/src/schema"];
    let files = folders
        .iter()
        .flat_map(|folder| fs::read_dir(workspace(folder)).unwrap());
    let mut recorded = Vec::new();
    for file in files {
        let path = file.unwrap().path();
        if path.extension().is_none_or(|extension| extension != "json") {
            continue;
        }
        let text = fs::read_to_string(&path).unwrap();
        let value: Value = serde_json::from_str(&text).unwrap();
        if value["schema"] != super::SCHEMA {
            continue;
        }
        if std::env::var(WRITE).as_deref() == Ok("write") {
            let document: Document = serde_json::from_value(value.clone()).unwrap();
            // With fields that are new.
            let written = serde_json::to_value(&document).unwrap();
            if written != value {
                fs::write(&path, serde_json::to_string_pretty(&document).unwrap() + "\n").unwrap();
            }
        }
        recorded.push(path.to_str().unwrap().to_owned());
    }
    assert!(recorded.len() > 20, "{recorded:?}");
    violations_in(super::SCHEMA, &recorded).unwrap();
}

#[test]
fn what_contradicts_the_schema_is_found() {
    let found = |change: &dyn Fn(&mut Value)| {
        let mut document = serde_json::to_value(example()).unwrap();
        change(&mut document);
        violations(super::SCHEMA, &[document]).unwrap_err()
    };
    let another = found(&|document| document["schema"] = json!("ringside.result/2"));
    assert!(another.contains("$.schema: "), "{another}");
    let text = found(&|document| document["result"]["run"]["duration_ns"] = json!("1 s"));
    assert!(text.contains("$.result.run.duration_ns: "), "{text}");
    let missing = found(&|document| {
        document["result"]["run"]["packets"]
            .as_object_mut()
            .unwrap()
            .remove("sent");
    });
    assert!(missing.contains("'sent' is a required property"), "{missing}");
}
