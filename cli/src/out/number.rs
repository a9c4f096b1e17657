use std::time::Duration;

/// Formats a count with separated thousands: `1 234 567`.
pub fn count(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(' ');
        }
        text.push(digit);
    }
    text
}

/// Formats a rate in three digits: `38.2 M`.
pub fn rate(per_second: f64) -> String {
    scaled(per_second, &[("", 1.0), (" k", 1e3), (" M", 1e6), (" G", 1e9)])
}

/// Formats nanoseconds in three digits: `2.13 µs`.
pub fn nanos(nanos: f64) -> String {
    scaled(nanos, &[(" ns", 1.0), (" µs", 1e3), (" ms", 1e6), (" s", 1e9)])
}

/// Formats bytes in three digits, or as a whole number of a unit: `1.21 MiB`, `16 KiB`.
#[allow(clippy::cast_precision_loss, reason = "three digits are printed")]
pub fn bytes(bytes: u64) -> String {
    const UNITS: [(&str, u64); 4] =
        [(" GiB", 1 << 30), (" MiB", 1 << 20), (" KiB", 1 << 10), (" B", 1)];
    let fits = |(_, size): &&(&str, u64)| bytes >= *size;
    let (unit, size) = UNITS.iter().find(fits).unwrap_or(&(" B", 1));
    digits(bytes as f64 / *size as f64, unit, bytes.is_multiple_of(*size))
}

/// Formats a number of bytes that is no integer, such as a median.
#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "it is not negative, and three digits are printed"
)]
pub fn whole_bytes(number: f64) -> String {
    bytes(number as u64)
}

/// Formats a time span in three digits.
pub fn span(span: Duration) -> String {
    nanos(span.as_secs_f64() * 1e9)
}

fn scaled(value: f64, units: &[(&str, f64)]) -> String {
    // 999.5 would be printed as 1000.
    let fits = |(_, size): &&(&str, f64)| value.abs() < size * 999.5;
    let Some((unit, size)) = units.iter().find(fits).or(units.last()) else {
        return value.to_string();
    };
    let value = value / size;
    digits(value, unit, value == value.trunc() && *size == 1.0)
}

fn digits(value: f64, unit: &str, is_whole: bool) -> String {
    let digits = match value.abs() {
        _ if is_whole => 0,
        small if small < 9.995 => 2,
        middle if middle < 99.95 => 1,
        _ => 0,
    };
    format!("{value:.digits$}{unit}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short_and_keep_three_digits() {
        assert_eq!(count(1_234_567), "1 234 567");
        assert_eq!(count(12), "12");
        assert_eq!(rate(38_200_000.0), "38.2 M");
        assert_eq!(rate(999.7), "1.00 k");
        assert_eq!(rate(8.0), "8");
        assert_eq!(nanos(2_134.0), "2.13 µs");
        assert_eq!(span(Duration::from_millis(250)), "250 ms");
        assert_eq!(span(Duration::from_secs(4)), "4.00 s");
    }

    #[test]
    fn bytes_are_whole_where_they_can_be() {
        assert_eq!(bytes(0), "0 B");
        assert_eq!(bytes(8144), "7.95 KiB");
        assert_eq!(bytes(16 << 10), "16 KiB");
        assert_eq!(bytes(1 << 20), "1 MiB");
        assert_eq!(bytes((1 << 20) - 1), "1024 KiB");
        assert_eq!(bytes(123_456_789), "118 MiB");
        assert_eq!(bytes((5 << 30) + 1), "5.00 GiB");
    }
}
