//! Output whose reader may stop reading.

/// Prints a line, and returns from the calling function on an error.
macro_rules! outln {
    ($($arg:tt)*) => {
        std::io::Write::write_fmt(&mut std::io::stdout(), format_args!("{}\n", format_args!($($arg)*)))?
    };
}
pub(crate) use outln;

/// Prints a message for the user on stderr. If that is closed, the user does not want messages.
macro_rules! tell {
    ($($arg:tt)*) => {{
        let _ = std::io::Write::write_fmt(&mut std::io::stderr(), format_args!("{}\n", format_args!($($arg)*)));
    }};
}
pub(crate) use tell;
