//! Prometheus' text format 0.0.4, for scrapers that do not ask for OpenMetrics.

/// Converts OpenMetrics text. `# HELP` and `# TYPE` name the sample, with its suffix, and there is
/// no type `info`.
pub(super) fn from_openmetrics(text: &str) -> String {
    let (mut plain, mut help) = (String::with_capacity(text.len()), None);
    for line in text.lines() {
        let mut words = line.splitn(4, ' ');
        match [(); 4].map(|()| words.next().unwrap_or_default()) {
            ["#", "HELP", name, text] => help = Some((name, text)),
            ["#", "TYPE", name, kind] => {
                let (suffix, kind) = match kind {
                    "counter" => ("_total", "counter"),
                    "info" => ("_info", "gauge"),
                    kind => ("", kind),
                };
                if let Some((_, text)) = help.take().filter(|(of, _)| *of == name) {
                    plain.push_str(&format!("# HELP {name}{suffix} {text}\n"));
                }
                plain.push_str(&format!("# TYPE {name}{suffix} {kind}\n"));
            }
            ["#", ..] => {}
            _ => plain.extend([line, "\n"]),
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metadata_names_metrics_of_the_format() {
        let open = "# HELP x_build Version.\n# TYPE x_build info\nx_build_info{version=\"1\"} 1\n\
                    # HELP x_packets Packets sent.\n# TYPE x_packets counter\nx_packets_total 7\n\
                    # HELP x_wait_seconds Time.\n# TYPE x_wait_seconds gauge\n\
                    # UNIT x_wait_seconds seconds\nx_wait_seconds 0.5\n\
                    # HELP x_long_seconds Times.\n# TYPE x_long_seconds histogram\n\
                    # UNIT x_long_seconds seconds\nx_long_seconds_sum 0.5\n\
                    x_long_seconds_count 1\nx_long_seconds_bucket{le=\"1.0\"} 1\n# EOF\n";
        let plain = "# HELP x_build_info Version.\n# TYPE x_build_info gauge\n\
                     x_build_info{version=\"1\"} 1\n\
                     # HELP x_packets_total Packets sent.\n# TYPE x_packets_total counter\n\
                     x_packets_total 7\n\
                     # HELP x_wait_seconds Time.\n# TYPE x_wait_seconds gauge\nx_wait_seconds 0.5\n\
                     # HELP x_long_seconds Times.\n# TYPE x_long_seconds histogram\n\
                     x_long_seconds_sum 0.5\nx_long_seconds_count 1\n\
                     x_long_seconds_bucket{le=\"1.0\"} 1\n";
        assert_eq!(from_openmetrics(open), plain);
    }
}
