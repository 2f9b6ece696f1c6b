//! Histograms as other tools write and read them: HdrHistogram's V2 format, compressed, in base64.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use hdrhistogram::Histogram;
use hdrhistogram::serialization::{Deserializer, Serializer as _, V2DeflateSerializer};

use super::{LONGEST_NS, Latency, Summary};
use crate::Error;

impl Latency {
    /// All samples as text of one line, some kilobytes; `None` when there are none. Values are nanoseconds. For
    /// `hdr-plot`, HdrHistogram's own libraries, and [`from_hdr`](Self::from_hdr).
    #[must_use]
    pub fn to_hdr(&self) -> Option<String> {
        if self.samples() == 0 {
            return None;
        }
        let mut bytes = Vec::new();
        // Into memory, and of bounds that are fine: nothing of it can fail.
        V2DeflateSerializer::new().serialize(&self.histogram, &mut bytes).ok()?;
        Some(BASE64_STANDARD.encode(bytes))
    }

    /// The samples of such a text, of this tool or another one. Its values have to be nanoseconds.
    ///
    /// Values are known to three digits then, also minimum, mean and maximum.
    ///
    /// # Errors
    ///
    /// [`Error::Histogram`] if it is no such text.
    ///
    /// ```
    /// use ringside_measure::latency::Latency;
    ///
    /// let mut here = Latency::new();
    /// (1..=1_000).for_each(|ns| here.record(ns));
    /// let mut both = Latency::from_hdr(&here.to_hdr().unwrap())?;
    /// both.merge(&here);
    /// assert_eq!(both.summary().unwrap().samples, 2_000);
    /// assert_eq!(both.summary().unwrap().p50_ns, Some(500));
    /// # Ok::<(), ringside_measure::Error>(())
    /// ```
    pub fn from_hdr(text: &str) -> Result<Self, Error> {
        let bytes = BASE64_STANDARD
            .decode(text.trim())
            .map_err(|error| Error::Histogram(error.to_string()))?;
        let histogram: Histogram<u64> = Deserializer::new()
            .deserialize(&mut &bytes[..])
            .map_err(|error| Error::Histogram(error.to_string()))?;
        let mut latency = Self::new();
        for step in histogram.iter_recorded() {
            latency.record_many(step.value_iterated_to().min(histogram.max()), step.count_at_value());
        }
        Ok(latency)
    }

    /// The same with minimum, maximum, mean and deviation as exact as the summary tells them that was made of the same samples: to
    /// go on with what was put away.
    ///
    /// # Errors
    ///
    /// [`Error::Histogram`] if it is no such text, or the two are not of the same samples.
    ///
    /// ```
    /// use ringside_measure::latency::Latency;
    ///
    /// let mut here = Latency::new();
    /// (1..=1_000).for_each(|us| here.record(us * 1_000 + 7));
    /// let again = Latency::from_hdr_and(&here.to_hdr().unwrap(), &here.summary().unwrap())?;
    /// assert_eq!(again.summary().unwrap().max_ns, 1_000_007);
    /// # Ok::<(), ringside_measure::Error>(())
    /// ```
    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_precision_loss,
        reason = "sums of times that are above zero, to 16 digits"
    )]
    pub fn from_hdr_and(text: &str, summary: &Summary) -> Result<Self, Error> {
        let mut latency = Self::from_hdr(text)?;
        let near = |told: u64, found: u64| told.min(LONGEST_NS).abs_diff(found.min(LONGEST_NS)) <= found / 500;
        if latency.samples() != summary.samples
            || !near(summary.min_ns, latency.min)
            || !near(summary.max_ns, latency.max)
        {
            return Err(Error::Histogram(
                "its samples are not those of the figures beside it".into(),
            ));
        }
        let samples = summary.samples as f64;
        (latency.min, latency.max) = (summary.min_ns, summary.max_ns);
        latency.sum = (summary.mean_ns * samples).round() as u128;
        latency.sum_of_squares = ((summary.stddev_ns.powi(2) + summary.mean_ns.powi(2)) * samples).round() as u128;
        Ok(latency)
    }

    pub(crate) fn record_many(&mut self, ns: u64, count: u64) {
        self.histogram.saturating_record_n(ns.min(LONGEST_NS), count);
        self.min = self.min.min(ns);
        self.max = self.max.max(ns);
        let (wide, count) = (u128::from(ns), u128::from(count));
        self.sum += wide * count;
        self.sum_of_squares = self
            .sum_of_squares
            .saturating_add(wide.saturating_mul(wide).saturating_mul(count));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_samples_come_back_to_three_digits() {
        let mut latency = Latency::new();
        for ns in [1, 70, 999, 12_345, 12_345, 5_000_000_000, 70_000_000_000] {
            latency.record(ns);
        }
        let text = latency.to_hdr().unwrap();
        assert!(text.starts_with("HISTF"), "what tools look for: {text}");
        let back = Latency::from_hdr(&text).unwrap().summary().unwrap();
        let summary = latency.summary().unwrap();
        assert_eq!((back.samples, back.min_ns), (7, 1));
        assert!(
            (back.mean_ns / ((summary.mean_ns * 7.0 - 1e10) / 7.0) - 1.0).abs() < 1e-3,
            "a minute at the most"
        );
        assert_eq!(Latency::new().to_hdr(), None);
    }

    #[test]
    fn what_another_library_wrote_is_read() {
        // By the reference implementation in Python (hdrhistogram 0.10.8): 1 to 3,600,000, 3 digits; 100, 200 twice, 300 000.
        let text = include_str!("python.hdr");
        let summary = Latency::from_hdr(text).unwrap().summary().unwrap();
        assert_eq!((summary.samples, summary.min_ns), (4, 100));
        assert!((300_000..300_300).contains(&summary.max_ns), "{summary:?}");
    }

    #[test]
    fn nonsense_is_an_error() {
        for text in ["", "HISTF", "not base64!", "SElTVA==", "HISTFAAAAAR42u3B"] {
            let error = Latency::from_hdr(text).unwrap_err().to_string();
            assert!(error.contains("reading a histogram"), "{error}");
        }
    }

    #[test]
    fn figures_beside_the_text_make_it_exact() {
        let mut here = Latency::new();
        [1_000_007, 2_000_009, 70_000_000_003]
            .into_iter()
            .for_each(|ns| here.record(ns));
        let (text, summary) = (here.to_hdr().unwrap(), here.summary().unwrap());
        let mut again = Latency::from_hdr_and(&text, &summary).unwrap();
        let back = again.summary().unwrap();
        assert_eq!((back.samples, back.min_ns, back.max_ns), (3, 1_000_007, 70_000_000_003));
        assert_eq!(again.sum, here.sum);
        assert!((back.stddev_ns / summary.stddev_ns - 1.0).abs() < 1e-9, "{back:?}");
        // It goes on as the first one does.
        here.record(5);
        again.record(5);
        let [back, summary] = [&again, &here].map(|latency| latency.summary().unwrap());
        assert_eq!((back.samples, back.min_ns, back.mean_ns), (4, 5, summary.mean_ns));
        assert!((back.stddev_ns / summary.stddev_ns - 1.0).abs() < 1e-9, "{back:?}");
    }

    #[test]
    fn figures_of_other_samples_are_an_error() {
        let mut here = Latency::new();
        (1..=1_000).for_each(|us| here.record(us * 1_000));
        let (text, own) = (here.to_hdr().unwrap(), here.summary().unwrap());
        // The text has three digits: a quarter of a percent is another sample, a tenth may be the same.
        let near = Summary {
            min_ns: 1_001,
            max_ns: 1_000_900,
            ..own
        };
        assert!(Latency::from_hdr_and(&text, &near).is_ok());
        for other in [
            Summary { samples: 999, ..own },
            Summary { min_ns: 1_010, ..own },
            Summary { min_ns: 990, ..own },
            Summary {
                max_ns: 1_002_600,
                ..own
            },
            Summary { max_ns: 997_000, ..own },
        ] {
            let error = Latency::from_hdr_and(&text, &other).unwrap_err().to_string();
            assert!(error.contains("not those of the figures"), "{error}");
        }
    }

    #[test]
    fn figures_beside_short_times_are_compared_exactly() {
        let mut here = Latency::new();
        [0, 1, 499].into_iter().for_each(|ns| here.record(ns));
        let (text, own) = (here.to_hdr().unwrap(), here.summary().unwrap());
        assert_eq!(Latency::from_hdr_and(&text, &own).unwrap().summary(), Some(own));
        let other = Summary { max_ns: 498, ..own };
        assert!(Latency::from_hdr_and(&text, &other).is_err());
    }

    #[test]
    fn many_equal_samples_are_as_many_single_ones() {
        let (mut many, mut single) = (Latency::new(), Latency::new());
        many.record_many(3_000, 4);
        many.record_many(u64::MAX, 1);
        [3_000, 3_000, 3_000, 3_000, u64::MAX]
            .into_iter()
            .for_each(|ns| single.record(ns));
        assert_eq!(many.summary(), single.summary());
        assert_eq!((many.sum, many.sum_of_squares), (single.sum, single.sum_of_squares));
    }
}
