//! Lists of queues and CPUs.

/// Numbers such as `0,2-3`.
#[derive(Clone, Debug)]
pub(crate) struct List(pub(crate) Vec<u32>);

pub(crate) fn list(text: &str) -> Result<List, String> {
    let number = |part: &str| {
        part.trim()
            .parse::<u32>()
            .ok()
            .filter(|&number| number < 65536)
            .ok_or_else(|| format!("{part:?} is no number; write a list such as 0,2-3"))
    };
    let mut numbers = Vec::new();
    for part in text.split(',') {
        match part.split_once('-') {
            Some((first, last)) => {
                let (first, last) = (number(first)?, number(last)?);
                if first > last {
                    return Err(format!("{part:?} runs backwards"));
                }
                numbers.extend(first..=last);
            }
            None => numbers.push(number(part)?),
        }
    }
    Ok(List(numbers))
}
