//! Output that its reader may stop reading.

/// Prints a line, and returns from the function with the error if that fails.
macro_rules! outln {
    ($($arg:tt)*) => {
        std::io::Write::write_fmt(&mut std::io::stdout(), format_args!("{}\n", format_args!($($arg)*)))?
    };
}
pub(crate) use outln;

/// Tells the user something beside the output. Who closed that does not want to know.
macro_rules! tell {
    ($($arg:tt)*) => {{
        let _ = std::io::Write::write_fmt(&mut std::io::stderr(), format_args!("{}\n", format_args!($($arg)*)));
    }};
}
pub(crate) use tell;
