//! Steering that another machine is asked for, or asks for: the words of `ringside steer run`, without threads to pin.

use std::str::FromStr;

use anyhow::{Result, anyhow};
use ringside_measure::control::SteerEnd;

use super::settings::Settings;
use super::values::ClassArg;

impl Settings {
    /// What a server is asked to set, and to count.
    pub(crate) fn asked_of(&self, classes: &[ClassArg]) -> SteerEnd {
        fn written<T: ToString>(all: &[T]) -> Vec<String> {
            all.iter().map(T::to_string).collect()
        }
        SteerEnd {
            class: written(classes),
            rule: written(&self.rules),
            rss: self.rss.clone(),
            irq: written(&self.irqs),
            rps: written(&self.rps),
            xps: written(&self.xps),
            egress: written(&self.egress),
        }
    }

    /// What a server was asked for.
    ///
    /// # Errors
    /// The first word that means nothing.
    pub(crate) fn of_errand(end: &SteerEnd) -> Result<(Self, Vec<ClassArg>)> {
        fn read<T: FromStr<Err = String>>(all: &[String]) -> Result<Vec<T>> {
            all.iter()
                .map(|text| text.parse().map_err(|why| anyhow!("{why}")))
                .collect()
        }
        let settings = Self {
            rules: read(&end.rule)?,
            rss: end.rss.clone(),
            irqs: read(&end.irq)?,
            rps: read(&end.rps)?,
            xps: read(&end.xps)?,
            egress: read(&end.egress)?,
            pins: Vec::new(),
        };
        Ok((settings, read(&end.class)?))
    }
}
