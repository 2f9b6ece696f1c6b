//! The studies that come with ringside.

use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result, anyhow};

use super::file::Text;

/// Name and lab file of each.
pub(super) const ALL: [(&str, &str); 8] = [
    ("smoke", include_str!("../../../../lab/smoke.toml")),
    ("host-to-host", include_str!("../../../../lab/host-to-host.toml")),
    ("host-to-guest", include_str!("../../../../lab/host-to-guest.toml")),
    (
        "host-to-guest-vhost-user",
        include_str!("../../../../lab/host-to-guest-vhost-user.toml"),
    ),
    (
        "host-to-guest-xdp",
        include_str!("../../../../lab/host-to-guest-xdp.toml"),
    ),
    ("schedule", include_str!("../../../../lab/schedule.toml")),
    ("steering", include_str!("../../../../lab/steering.toml")),
    ("steering-igb", include_str!("../../../../lab/steering-igb.toml")),
];

/// A lab file, or a study by its name where there is no such file.
pub(super) fn read(file: &Path) -> Result<Text> {
    let name = file.display().to_string();
    let study = ALL.iter().find(|(study, _)| *study == name);
    match (fs::read_to_string(file), study) {
        (Ok(text), _) => Ok(Text { name, text }),
        (Err(_), Some((_, text))) => Ok(Text {
            name,
            text: (*text).to_owned(),
        }),
        (Err(error), None) => {
            let names: Vec<&str> = ALL.iter().map(|(study, _)| *study).collect();
            Err(error).with_context(|| {
                anyhow!(
                    "reading the lab file {name}, which is no study either ({})",
                    names.join(", ")
                )
            })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lab::plan::Plan;

    #[test]
    fn the_studies_are_right() {
        for (name, text) in ALL {
            let text = Text {
                name: name.to_owned(),
                text: text.to_owned(),
            };
            let plan = Plan::read(&text).unwrap_or_else(|error| panic!("{error}"));
            assert!(!plan.title.is_empty() && !plan.probes.is_empty(), "{name}");
        }
    }
}
