//! The screen, made of what was seen and chosen. Whatever its size, it draws what fits.

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::Paragraph;

use super::app::App;
use super::page;
use crate::report::units::time;

const REVERSED: Style = Style::new().add_modifier(Modifier::REVERSED);
const DIM: Style = Style::new().add_modifier(Modifier::DIM);

const KEYS: &str = " q quit  Tab next page  arrows  p pause  r reset  ? help";

const HELP: &[&str] = &[
    "q, Esc, Ctrl-C    quit",
    "Tab, Right        next page; Shift-Tab, Left: the one before",
    "Up, Down          scroll; Page Up, Page Down, Home",
    "p, Space          pause: what is shown stays",
    "r                 losses are told since now",
    "?                 this, and away with it",
    "",
    "Frames of a UMEM: F fill ring, R RX ring, U application, T TX ring,",
    "C completion ring, . free. Rates are of the last interval.",
];

pub(super) fn draw(frame: &mut Frame<'_>, app: &mut App) {
    let parts = [Constraint::Length(1), Constraint::Fill(1), Constraint::Length(1)];
    let [top, middle, bottom] = Layout::vertical(parts).areas(frame.area());
    frame.render_widget(Paragraph::new(pages(app, top)), top);
    body(frame, app, middle);
    let mut foot = vec![Span::styled(KEYS, DIM)];
    if app.paused {
        foot.insert(0, Span::styled(" paused ", REVERSED));
    }
    frame.render_widget(Paragraph::new(Line::from(foot)), bottom);
}

/// The names of the pages, the chosen one marked; from it on where there is no room for all.
fn pages(app: &App, area: Rect) -> Line<'static> {
    let Some(view) = &app.view else {
        return Line::from("ringside top");
    };
    #[allow(clippy::cast_precision_loss, reason = "for people, three digits")]
    let every = time(view.interval_ns as f64);
    let mut spans = vec![Span::raw(format!("ringside top, {every}  "))];
    let subjects = app.subjects();
    let names = subjects
        .iter()
        .map(|subject| (*subject, format!(" {} ", page::title(view, *subject))));
    let names: Vec<_> = names.collect();
    let width: usize = names.iter().map(|(_, name)| name.chars().count()).sum();
    let room = usize::from(area.width).saturating_sub(spans[0].width());
    let chosen = subjects.iter().position(|subject| Some(*subject) == app.chosen());
    let skipped = if width > room { chosen.unwrap_or(0) } else { 0 };
    if skipped != 0 {
        spans.push(Span::raw("< "));
    }
    for (subject, name) in names.into_iter().skip(skipped) {
        let is_chosen = Some(subject) == app.chosen();
        spans.push(Span::styled(name, if is_chosen { REVERSED } else { Style::new() }));
    }
    Line::from(spans)
}

fn body(frame: &mut Frame<'_>, app: &mut App, area: Rect) {
    let columns = usize::from(area.width);
    let lines: Vec<Line<'static>> = match (&app.view, app.chosen()) {
        _ if app.help => HELP.iter().map(|line| Line::from(*line)).collect(),
        (None, _) => vec![Line::from("looking …")],
        (Some(view), None) => page::nobody(view, columns),
        (Some(view), Some(subject)) => page::lines(view, subject, columns),
    };
    // No further than to its end.
    let most = lines.len().saturating_sub(usize::from(area.height));
    app.scroll = app.scroll.min(u16::try_from(most).unwrap_or(u16::MAX));
    frame.render_widget(Paragraph::new(lines).scroll((app.scroll, 0)), area);
}

#[cfg(test)]
#[path = "screen_tests.rs"]
mod tests;
