use std::path::PathBuf;
use std::time::Duration;

use bellwire::ServiceName;

use crate::args::positive_duration;
use crate::out::Format;

/// Call any service once and print its answer
///
/// The request is text, hexadecimal digits, the bytes of stdin or, with --proto, JSON that is encoded as Protocol Buffers; without any
/// of these it is empty. An answer is printed as text if it is printable UTF-8, otherwise as hexadecimal digits.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
A file of --proto needs no protoc. It has the messages of its only method, unless --request and --response name others.

Exit codes: 3 no provider, 4 refused, or other types than the provider's, 5 no answer in time, 6 the handler failed.

Examples:
  bellwire call length --text bell
  bellwire call increment --hex 2900000000000000
  bellwire call increment --hex 2900000000000000 --schema 'u64 -> u64'
  bellwire call disk --proto disk.proto --json '{\"name\": \"sda\"}' | jq .reads")]
#[command(group = clap::ArgGroup::new("content"))]
pub(crate) struct Call {
    /// The service's name: a-z, 0-9 and -
    #[arg(value_name = "SERVICE")]
    pub(crate) service: ServiceName,
    /// The version of the service
    #[arg(long, default_value_t = 1, value_name = "N", value_parser = clap::value_parser!(u32).range(..u32::MAX as i64))]
    pub(crate) service_version: u32,
    /// Schema text of both types; its hash must match the provider's fingerprint [default: no check]
    #[arg(long, value_name = "TEXT")]
    pub(crate) schema: Option<String>,
    /// The request, as text
    #[arg(long, value_name = "TEXT", group = "content")]
    pub(crate) text: Option<String>,
    /// The request, as pairs of hexadecimal digits; prints the answer as digits, too
    #[arg(long, value_name = "DIGITS", group = "content", value_parser = hex_digits)]
    pub(crate) hex: Option<HexDigits>,
    /// The request as JSON, encoded as the --proto message; sent as is without --proto
    #[arg(long, value_name = "JSON", group = "content")]
    pub(crate) json: Option<String>,
    /// Read the request from stdin
    #[arg(long, group = "content")]
    pub(crate) stdin: bool,
    /// A file that describes the messages
    #[arg(long, value_name = "FILE", conflicts_with = "raw")]
    pub(crate) proto: Option<PathBuf>,
    /// The message of the request in that file
    #[arg(long, value_name = "MESSAGE", requires = "proto")]
    pub(crate) request: Option<String>,
    /// The message of the answer in that file
    #[arg(long, value_name = "MESSAGE", requires = "proto")]
    pub(crate) response: Option<String>,
    /// Print the bytes of the answer unchanged
    #[arg(long)]
    pub(crate) raw: bool,
    /// The output format; JSON is one object, with the answer as text or as hexadecimal digits
    #[arg(long, short, value_enum, default_value_t, value_name = "FORMAT", conflicts_with_all = ["raw", "proto"])]
    pub(crate) output: Format,
    /// How long to wait for the answer
    #[arg(long, default_value = "2s", value_name = "TIME", value_parser = positive_duration)]
    pub(crate) timeout: Duration,
}

/// Bytes of the command line.
#[derive(Clone, Debug)]
pub(crate) struct HexDigits(pub(crate) Vec<u8>);

fn hex_digits(text: &str) -> Result<HexDigits, String> {
    let digits = text.chars().filter(|digit| !digit.is_whitespace());
    let nibbles: Option<Vec<u32>> = digits.map(|digit| digit.to_digit(16)).collect();
    let nibbles = nibbles.filter(|nibbles| nibbles.len() % 2 == 0);
    let nibbles = nibbles.ok_or("expected pairs of hexadecimal digits, such as 29 00ff")?;
    let byte = |pair: &[u32]| pair.iter().fold(0, |byte, nibble| byte << 4 | nibble);
    Ok(HexDigits(nibbles.chunks(2).filter_map(|pair| u8::try_from(byte(pair)).ok()).collect()))
}
