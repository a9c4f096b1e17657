//! Output to a reader that may close its end.

/// Prints a line to standard output, and returns from the calling function on an error.
macro_rules! outln {
    ($($arg:tt)*) => {
        std::io::Write::write_fmt(&mut std::io::stdout(), format_args!("{}\n", format_args!($($arg)*)))?
    };
}
pub(crate) use outln;

/// Prints a message for the user on stderr. An error is ignored: if stderr is closed, the user wants no messages.
macro_rules! errln {
    ($($arg:tt)*) => {{
        let _ = std::io::Write::write_fmt(&mut std::io::stderr(), format_args!("{}\n", format_args!($($arg)*)));
    }};
}
pub(crate) use errln;
