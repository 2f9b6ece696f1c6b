//! The other end of the test bed: a `ringside echo`, as a process of its own.

use std::io::{BufRead as _, BufReader};
use std::process::{Child, Stdio};

use anyhow::{Context as _, Result, bail};
use ringside_netlab::End;

/// Ends with this value.
pub(super) struct Echo {
    process: Child,
    threads: u32,
}

impl Echo {
    pub(super) fn start(end: &End) -> Result<Self> {
        let program = std::env::current_exe().context("finding this program")?;
        let mut command = end.ns.command(program);
        command
            .args(["echo", end.interface.name()])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped());
        let process = command.spawn().context("starting `ringside echo` on the test bed")?;
        let mut echo = Self {
            process,
            threads: end.run(|| end.interface.rx_queues())?,
        };
        let errors = BufReader::new(echo.process.stderr.take().context("its standard error")?);
        let mut said = String::new();
        for line in errors.lines() {
            let line = line?;
            if line.contains("XDP program") {
                return Ok(echo);
            }
            said += &line;
        }
        bail!("`ringside echo` on the test bed ended: {said}");
    }
}

impl Echo {
    pub(super) fn pid(&self) -> u32 {
        self.process.id()
    }

    /// Returns the number of its threads, which spin: one for each queue.
    pub(super) fn threads(&self) -> u32 {
        self.threads
    }
}

impl Drop for Echo {
    fn drop(&mut self) {
        // Ours, and not waited for before.
        _ = self.process.kill();
        _ = self.process.wait();
    }
}
