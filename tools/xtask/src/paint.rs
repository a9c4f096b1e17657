use std::env;
use std::io::{IsTerminal, stderr, stdout};

/// Colours, when a person looks: on a terminal, unless `NO_COLOR` is set.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Paint {
    on: bool,
}

impl Paint {
    pub(crate) fn for_stdout() -> Self {
        Self { on: stdout().is_terminal() && wanted() }
    }

    pub(crate) fn for_stderr() -> Self {
        Self { on: stderr().is_terminal() && wanted() }
    }

    /// Whether colours are on.
    pub(crate) fn is_on(self) -> bool {
        self.on
    }

    pub(crate) fn red(self, text: &str) -> String {
        self.wrap("31", text)
    }

    pub(crate) fn green(self, text: &str) -> String {
        self.wrap("32", text)
    }

    pub(crate) fn yellow(self, text: &str) -> String {
        self.wrap("33", text)
    }

    pub(crate) fn bold(self, text: &str) -> String {
        self.wrap("1", text)
    }

    fn wrap(self, code: &str, text: &str) -> String {
        if self.on { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_owned() }
    }
}

fn wanted() -> bool {
    let no_color = env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    let dumb = env::var_os("TERM").is_some_and(|value| value == "dumb");
    !no_color && !dumb
}

#[cfg(test)]
mod tests {
    use super::Paint;

    #[test]
    fn without_colours_the_text_is_left_alone() {
        assert_eq!(Paint { on: false }.red("x"), "x");
        assert_eq!(Paint { on: true }.red("x"), "\x1b[31mx\x1b[0m");
    }
}
