use std::path::PathBuf;

use super::*;
use crate::args::Cli;

/// A file with this text that is there for a test.
struct File(PathBuf);

impl File {
    fn new(name: &str, text: &str) -> Self {
        let path = std::env::temp_dir().join(format!("ringside-{}-{name}.toml", std::process::id()));
        fs::write(&path, text).unwrap();
        Self(path)
    }

    /// `line` with this file in the place of `FILE`, expanded.
    fn expand(&self, line: &str) -> Result<Vec<String>> {
        let file = self.0.to_str().unwrap();
        let words = line
            .split_whitespace()
            .map(|word| word.replace("FILE", file).into())
            .collect();
        let words: Vec<OsString> = words;
        let definition = Cli::definition();
        let words = match Asked::of(&definition, &words) {
            Some(asked) => asked.expanded(&definition, &words)?,
            None => words,
        };
        Ok(words.iter().map(|word| word.to_string_lossy().into_owned()).collect())
    }

    fn error(&self, line: &str) -> String {
        format!("{:#}", self.expand(line).unwrap_err())
    }
}

impl Drop for File {
    fn drop(&mut self) {
        _ = fs::remove_file(&self.0);
    }
}

#[test]
fn options_stand_in_front_in_their_order() {
    let file = File::new(
        "order",
        "# the best here\nwait = \"poll\"\nbatch = 256\nhuge-pages = true\nunaligned = false\nthreaded-napi = true\n",
    );
    let expanded = file.expand("ringside rx eth0 --config FILE -t 5").unwrap();
    let expected = [
        "ringside",
        "rx",
        "--wait=poll",
        "--batch=256",
        "--huge-pages",
        "--threaded-napi",
        "eth0",
        "-t",
        "5",
    ];
    assert_eq!(expanded, expected);
    // The same in one word, and what comes out is a command line.
    assert_eq!(file.expand("ringside rx eth0 --config=FILE -t 5").unwrap(), expected);
    assert!(Cli::definition().try_get_matches_from(expected).is_ok());
    // Nothing to do.
    let plain = ["ringside", "rx", "eth0"];
    assert_eq!(file.expand("ringside rx eth0").unwrap(), plain);
}

#[test]
fn the_command_line_counts_more() {
    let file = File::new(
        "over",
        "batch = 256\nfrom-mac = \"02:00:00:00:00:01\"\nsleep = true\ncycle = \"1ms\"\nto = \"192.0.2.7\"\n",
    );
    let line = "ringside tx eth0 --batch 16 --config FILE --rate 5 --to 192.0.2.9";
    // --rate and --cycle exclude each other.
    assert_eq!(
        file.expand(line).unwrap(),
        [
            "ringside",
            "tx",
            "--from-mac=02:00:00:00:00:01",
            "--sleep",
            "eth0",
            "--batch",
            "16",
            "--rate",
            "5",
            "--to",
            "192.0.2.9"
        ]
    );
    // The short name is the same option.
    assert!(
        !file
            .expand("ringside tx eth0 -b 16 --config FILE")
            .unwrap()
            .contains(&"--batch=256".to_owned())
    );
    let lists = File::new("lists", "sizes = [64, 512]\noperations = \"rx\"\ntime = 5\n");
    let expanded = lists.expand("ringside compare --lab veth --config FILE").unwrap();
    assert_eq!(
        expanded,
        [
            "ringside",
            "compare",
            "--sizes=64,512",
            "--operations=rx",
            "--time=5",
            "--lab",
            "veth"
        ]
    );
}

#[test]
fn mistakes_are_told_with_their_line() {
    for (text, line, words) in [
        ("batch = 64\nbacth = 64\n", 2, "`bacth` is no option of `ringside rx`"),
        (
            "\n\nwait = \"sometimes\"\n",
            3,
            "[possible values: spin, poll, busy-poll]",
        ),
        ("napi-defer = \"2\"\n", 1, "POLLS:MICROS"),
        ("batch = -1\n", 1, "invalid value '-1'"),
        ("batch = true\n", 1, "takes a value"),
        ("huge-pages = \"yes\"\n", 1, "is a switch"),
        ("[rx]\nbatch = 64\n", 1, "`rx` is no option"),
        ("batch = 64\nwait = \n", 2, ""),
        ("config = \"other.toml\"\n", 1, "can stand in a file"),
        ("interface = \"eth0\"\n", 1, "`interface` is no option"),
        ("batch = {a = 1}\n", 1, "neither text nor a number"),
        ("batch = 1\nbatch = 2\n", 2, "duplicate"),
    ] {
        let error = File::new("wrong", text).error("ringside rx eth0 --config FILE");
        assert!(
            error.contains(&format!("line {line}: ")) && error.contains(words),
            "{text:?}: {error}"
        );
        assert!(!error.contains('\n'), "{error}");
    }
    let missing = File(PathBuf::from("/nonexistent/x.toml")).error("ringside rx eth0 --config FILE");
    assert!(
        missing.contains("reading the options in /nonexistent/x.toml: No such file"),
        "{missing}"
    );
}
