//! As much of HTTP as a scrape takes.

use httparse::{EMPTY_HEADER, Request, Status};

/// A request is shorter, and has fewer headers.
pub(super) const LONGEST: usize = 8 << 10;
const HEADERS: usize = 64;

const OPEN_METRICS: &str = "application/openmetrics-text";

/// What to do with what has come so far.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Asked {
    /// The request has not ended yet.
    Not,
    /// For the metrics, as OpenMetrics or in the format before it.
    Metrics(Format),
    /// For something else: the whole answer.
    Answer(Vec<u8>),
}

/// How metrics are written down.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Format {
    /// <https://prometheus.io/docs/specs/om/open_metrics_spec/>
    OpenMetrics,
    /// Prometheus' own, 0.0.4: <https://prometheus.io/docs/instrumenting/exposition_formats/>
    Text,
}

impl Format {
    fn content_type(self) -> &'static str {
        match self {
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
            Self::Text => "text/plain; version=0.0.4; charset=utf-8",
        }
    }
}

pub(super) fn asked(bytes: &[u8]) -> Asked {
    let mut headers = [EMPTY_HEADER; HEADERS];
    let mut request = Request::new(&mut headers);
    match request.parse(bytes) {
        Ok(Status::Complete(_)) => {}
        Ok(Status::Partial) if bytes.len() < LONGEST => return Asked::Not,
        Ok(Status::Partial) => return plain("431 Request Header Fields Too Large", "", "the request is too long\n"),
        Err(_) => return plain("400 Bad Request", "", "this is no HTTP request\n"),
    }
    let path = request.path.unwrap_or_default();
    if path.split('?').next() != Some("/metrics") {
        return plain("404 Not Found", "", "the metrics are at /metrics\n");
    }
    if request.method != Some("GET") {
        return plain(
            "405 Method Not Allowed",
            "Allow: GET\r\n",
            "GET /metrics is all there is\n",
        );
    }
    let takes_open_metrics = request.headers.iter().any(|header| {
        header.name.eq_ignore_ascii_case("accept")
            && header
                .value
                .windows(OPEN_METRICS.len())
                .any(|part| part.eq_ignore_ascii_case(OPEN_METRICS.as_bytes()))
    });
    // A browser shows the second.
    Asked::Metrics(match takes_open_metrics {
        true => Format::OpenMetrics,
        false => Format::Text,
    })
}

pub(super) fn answer(format: Format, body: &str) -> Vec<u8> {
    whole("200 OK", format.content_type(), "", body)
}

fn plain(status: &str, header: &str, body: &str) -> Asked {
    Asked::Answer(whole(status, "text/plain; charset=utf-8", header, body))
}

fn whole(status: &str, content_type: &str, header: &str, body: &str) -> Vec<u8> {
    let length = body.len();
    format!(
        "HTTP/1.1 {status}\r\nContent-Type: {content_type}\r\nContent-Length: {length}\r\n{header}Connection: close\r\n\r\n{body}"
    )
    .into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(request: &str) -> String {
        match asked(request.as_bytes()) {
            Asked::Answer(bytes) => String::from_utf8(bytes).unwrap()[9..12].to_owned(),
            other => panic!("{request:?}: {other:?}"),
        }
    }

    #[test]
    fn a_scrape_is_understood_when_it_is_whole() {
        let request = "GET /metrics HTTP/1.1\r\nHost: localhost:9464\r\nACCEPT: application/OpenMetrics-text;version=1.0.0\r\n\r\n";
        for end in 0..request.len() {
            assert_eq!(asked(&request.as_bytes()[..end]), Asked::Not, "{end}");
        }
        let Asked::Metrics(kind) = asked(request.as_bytes()) else {
            panic!("not understood");
        };
        assert!(kind.content_type().starts_with(OPEN_METRICS));
        let by_hand = asked(b"GET /metrics?x=1 HTTP/1.0\r\n\r\n");
        assert_eq!(by_hand, Asked::Metrics(Format::Text));
    }

    #[test]
    fn everything_else_has_an_answer_too() {
        assert_eq!(status("GET / HTTP/1.1\r\n\r\n"), "404");
        assert_eq!(status("GET /metricsx HTTP/1.1\r\n\r\n"), "404");
        assert_eq!(status("POST /metrics HTTP/1.1\r\n\r\n"), "405");
        assert_eq!(status("\u{16}\u{3}\u{1}\u{2}\r\n\r\n"), "400");
        let long = format!("GET /metrics HTTP/1.1\r\nX: {}", "x".repeat(LONGEST));
        assert_eq!(status(&long), "431");
        let many = format!("GET /metrics HTTP/1.1\r\n{}\r\n", "X: 1\r\n".repeat(HEADERS + 1));
        assert_eq!(status(&many), "400");
        let answer = String::from_utf8(answer(Format::Text, "abc\n")).unwrap();
        assert!(
            answer.contains("Content-Length: 4\r\n") && answer.ends_with("\r\n\r\nabc\n"),
            "{answer}"
        );
    }
}
