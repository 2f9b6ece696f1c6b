//! What the user has chosen, and what was seen last: changed by keys and by looks, drawn by screen.rs.

use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};

use super::observation::Observation;
use super::page::{self, Subject};
use super::view::View;

/// All that the screen is made of.
#[derive(Debug, Default)]
pub(super) struct App {
    /// Losses are told since this look: the first one, or the one at which the user pressed `r`.
    base: Option<Observation>,
    earlier: Option<Observation>,
    later: Option<Observation>,
    pub(super) view: Option<View>,
    chosen: Option<Subject>,
    pub(super) paused: bool,
    pub(super) help: bool,
    /// Lines above the first one that is shown.
    pub(super) scroll: u16,
}

/// What a key asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum After {
    Nothing,
    Draw,
    Quit,
}

impl App {
    /// Takes a look in, unless the user wants what there is to stay.
    pub(super) fn observe(&mut self, observation: Observation) {
        if self.paused {
            return;
        }
        self.earlier = self.later.take();
        self.later = Some(observation);
        self.see();
    }

    fn see(&mut self) {
        let Some(later) = &self.later else { return };
        let base = self.base.get_or_insert_with(|| later.clone());
        self.view = Some(View::of(base, self.earlier.as_ref().unwrap_or(later), later));
        // What the user looked at may be gone.
        let there = self.subjects();
        if !self.chosen.is_some_and(|chosen| there.contains(&chosen)) {
            self.chosen = there.first().copied();
            self.scroll = 0;
        }
    }

    pub(super) fn subjects(&self) -> Vec<Subject> {
        self.view.as_ref().map_or(Vec::new(), page::subjects)
    }

    /// The page that is shown.
    pub(super) fn chosen(&self) -> Option<Subject> {
        self.chosen
    }

    pub(super) fn on_key(&mut self, key: KeyEvent) -> After {
        if key.kind == KeyEventKind::Release {
            return After::Nothing;
        }
        let control = key.modifiers.contains(KeyModifiers::CONTROL);
        match key.code {
            KeyCode::Char('c') if control => return After::Quit,
            KeyCode::Char('q') => return After::Quit,
            KeyCode::Esc if !self.help => return After::Quit,
            KeyCode::Char('?' | 'h') => self.help = !self.help,
            _ if self.help => self.help = false,
            KeyCode::Tab | KeyCode::Right => self.step(true),
            KeyCode::BackTab | KeyCode::Left => self.step(false),
            KeyCode::Down => self.scroll = self.scroll.saturating_add(1),
            KeyCode::Up => self.scroll = self.scroll.saturating_sub(1),
            KeyCode::PageDown => self.scroll = self.scroll.saturating_add(10),
            KeyCode::PageUp => self.scroll = self.scroll.saturating_sub(10),
            KeyCode::Home => self.scroll = 0,
            KeyCode::Char('p' | ' ') => self.paused = !self.paused,
            KeyCode::Char('r') => {
                self.base = self.later.clone();
                self.see();
            }
            _ => return After::Nothing,
        }
        After::Draw
    }

    /// To the next page, or the one before, around the ends.
    fn step(&mut self, forward: bool) {
        let there = self.subjects();
        let at = there
            .iter()
            .position(|subject| Some(*subject) == self.chosen)
            .unwrap_or(0);
        if !there.is_empty() {
            let by = if forward { 1 } else { there.len() - 1 };
            self.chosen = Some(there[(at + by) % there.len()]);
            self.scroll = 0;
        }
    }
}

#[cfg(test)]
#[path = "app_tests.rs"]
mod tests;
