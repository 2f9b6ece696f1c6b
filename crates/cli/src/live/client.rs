//! Asking a running command for its statistics.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use ringside_measure::live::{SCHEMA, Snapshot};

/// It takes a tenth of a second at the most, unless the process was stopped.
const PATIENCE: Duration = Duration::from_secs(1);

/// Longer than any snapshot: what is longer is none.
const LONGEST: u64 = 16 << 20;

/// A connection, over which one may ask as often as one likes.
#[derive(Debug)]
pub(crate) struct Client {
    stream: BufReader<UnixStream>,
}

impl Client {
    pub(crate) fn connect(path: &Path) -> std::io::Result<Self> {
        let stream = UnixStream::connect(path)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        Ok(Self {
            stream: BufReader::new(stream),
        })
    }

    /// After an error it is of no use any more: an answer that comes late would be taken for the next one.
    pub(crate) fn ask(&mut self) -> Result<Snapshot> {
        self.stream.get_mut().write_all(b"\n").context("asking")?;
        let mut line = String::new();
        let read = (&mut self.stream).take(LONGEST).read_line(&mut line);
        if read.context("waiting for the answer")? == 0 {
            bail!("it has ended");
        }
        let snapshot: Snapshot = serde_json::from_str(&line).context("reading the answer")?;
        if snapshot.schema != SCHEMA {
            bail!("its schema is {:?}, this version reads {SCHEMA:?}", snapshot.schema);
        }
        Ok(snapshot)
    }
}
