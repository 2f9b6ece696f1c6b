//! The command line.

use std::path::PathBuf;

use ringside_bpf::{Redirected, XdpMode};
use ringside_netlab::attach::{AttachConfig, Way};

use crate::Outcome;
use crate::far::ECHO_PORT;

pub(crate) struct Options {
    pub(crate) candidates: Vec<Candidate>,
    pub(crate) rounds: u32,
    pub(crate) probes: u32,
    pub(crate) interval_us: u64,
    pub(crate) load: u32,
    pub(crate) pace_mbit: Option<u64>,
    pub(crate) cpus: u32,
    pub(crate) ringside: PathBuf,
}

#[derive(Clone)]
pub(crate) struct Candidate {
    pub(crate) name: String,
    pub(crate) way: Way,
    pub(crate) queues: u32,
    queue_len: Option<u32>,
    generic: bool,
    pub(crate) no_gro: bool,
}

impl Options {
    pub(crate) fn parse(words: &[String]) -> Outcome<Self> {
        let mut options = Self {
            candidates: Vec::new(),
            rounds: 5,
            probes: 500,
            interval_us: 2000,
            load: 0,
            pace_mbit: None,
            cpus: 2,
            ringside: "ringside".into(),
        };
        let mut words = words.iter();
        while let Some(word) = words.next() {
            let mut value = || words.next().ok_or_else(|| format!("{word}: its value is missing"));
            match word.as_str() {
                "--rounds" => options.rounds = value()?.parse()?,
                "--probes" => options.probes = value()?.parse()?,
                "--interval" => options.interval_us = value()?.parse()?,
                "--pace" => options.pace_mbit = Some(value()?.parse()?),
                "--load" => options.load = value()?.parse()?,
                "--cpus" => options.cpus = value()?.parse()?,
                "--ringside" => options.ringside = std::path::absolute(value()?)?,
                way => options.candidates.push(Candidate::parse(way)?),
            }
        }
        if options.candidates.is_empty() {
            return Err("no way is named: tap-bridge, xdp, …".into());
        }
        Ok(options)
    }
}

impl Candidate {
    fn parse(word: &str) -> Outcome<Self> {
        let (way, more) = word.split_once(':').unwrap_or((word, ""));
        let mut candidate = Self {
            name: word.to_owned(),
            way: way.parse()?,
            queues: 1,
            queue_len: None,
            generic: false,
            no_gro: false,
        };
        for option in more.split(',').filter(|option| !option.is_empty()) {
            match option.split_once('=') {
                Some(("len", packets)) => candidate.queue_len = Some(packets.parse()?),
                Some(("queues", queues)) => candidate.queues = queues.parse()?,
                None if option == "generic" => candidate.generic = true,
                None if option == "no-gro" => candidate.no_gro = true,
                _ => return Err(format!("{word}: no option is called {option}").into()),
            }
        }
        Ok(candidate)
    }

    pub(crate) fn config(&self, number: u8, options: &Options) -> AttachConfig {
        let mut config = AttachConfig::new(format!("m{number}"));
        config.queues = self.queues;
        config.queue_len = self.queue_len;
        config.ringside = options.ringside.clone();
        config.express = Redirected::Udp(ECHO_PORT);
        if self.generic {
            config.xdp_mode = XdpMode::Generic;
        }
        config
    }
}
