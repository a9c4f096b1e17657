//! Pictures: how latencies are spread, throughput by size, processor time by rate.

use std::collections::BTreeMap;
use std::error::Error;
use std::path::Path;

use plotters::coord::Shift;
use plotters::prelude::*;

use super::model::{Latency, Measured, Report, Row};
use crate::Outcome;

/// A file beside the report.
pub(crate) struct Picture {
    pub(crate) file: String,
    pub(crate) about: String,
}

/// Points of one contender.
type Lines = BTreeMap<String, Vec<(f64, f64)>>;

/// One of the percentiles of a row.
type Percentile = fn(&Latency) -> u64;

/// What a picture says of its axes.
struct Axes<'a> {
    title: &'a str,
    across: &'a str,
    up: &'a str,
    /// Whether steps up are by factors.
    is_log_up: bool,
}

const SIZE: (u32, u32) = (860, 480);

/// Draws what the report has points for.
pub(crate) fn draw(report: &Report, dir: &Path) -> Outcome<Vec<Picture>> {
    let mut pictures = Vec::new();
    for measured in &report.scenarios {
        let lines = cdf(measured);
        let title = format!("{}: part of operations that took no longer", measured.name);
        let axes = Axes { title: &title, across: "ns", up: "%", is_log_up: false };
        picture(dir, &format!("cdf-{}.svg", measured.name), &axes, &lines, &mut pictures)?;
    }
    for group in ["ping-pong", "stream"] {
        let lines = by(report, group, |measured, row| {
            let bytes = f64::from(u32::try_from(measured.bytes?).ok()?);
            Some((bytes, bytes * 1e3 / row.ns.median))
        });
        let title = format!("{group}: throughput by size");
        let axes = Axes { title: &title, across: "bytes", up: "MB/s", is_log_up: true };
        picture(dir, &format!("throughput-{group}.svg"), &axes, &lines, &mut pictures)?;
    }
    let cpu = |row: &Row, rate: f64| (row.cpu_client_ns + row.cpu_server_ns) * rate / 1e7;
    let lines = by_rate(report, |row, rate| Some(cpu(row, rate).max(0.01)));
    let title = "processor time of both ends by rate";
    let axes = Axes { title, across: "calls a second", up: "% of one processor", is_log_up: true };
    picture(dir, "cpu-by-rate.svg", &axes, &lines, &mut pictures)?;
    let parts: [(&str, Percentile); 2] = [("p50", |of| of.p50), ("p99", |of| of.p99)];
    for (part, of) in parts {
        #[expect(clippy::cast_precision_loss, reason = "below 2^53 ns")]
        let lines = by_rate(report, |row, _| row.latency.as_ref().map(|all| of(all) as f64));
        let title = format!("{part} of a call by rate");
        let axes = Axes { title: &title, across: "calls a second", up: "ns", is_log_up: true };
        picture(dir, &format!("{part}-by-rate.svg"), &axes, &lines, &mut pictures)?;
    }
    Ok(pictures)
}

/// Of each contender, what part of the operations took no longer than so many ns.
#[expect(clippy::cast_precision_loss, reason = "below 2^53")]
fn cdf(measured: &Measured) -> Lines {
    let mut lines = Lines::new();
    for row in measured.main_rows() {
        let Some(latency) = &row.latency else { continue };
        let (mut so_far, mut points) = (0, Vec::new());
        for &(ns, count) in &latency.counts {
            so_far += count;
            points.push((ns.max(1) as f64, so_far as f64 * 100.0 / latency.count as f64));
        }
        // Invisible steps are left out.
        let step = points.len() / 400 + 1;
        let last = points.last().copied();
        let mut points: Vec<_> = points.into_iter().step_by(step).collect();
        points.extend(last);
        lines.insert(row.contender.clone(), points);
    }
    lines
}

/// Of each contender, a point of each scenario of a group.
fn by(
    report: &Report,
    group: &str,
    point: impl Fn(&Measured, &Row) -> Option<(f64, f64)>,
) -> Lines {
    let mut lines = Lines::new();
    for (measured, row) in report.main_rows().filter(|(measured, _)| measured.group == group) {
        if let Some(point) = point(measured, row) {
            lines.entry(row.contender.clone()).or_default().push(point);
        }
    }
    lines
}

/// Of each contender, a value at each rate.
#[expect(clippy::cast_precision_loss, reason = "a million at most")]
fn by_rate(report: &Report, value: impl Fn(&Row, f64) -> Option<f64>) -> Lines {
    by(report, "rate", |measured, row| {
        let rate = measured.rate? as f64;
        Some((rate, value(row, rate)?))
    })
}

/// Draws it, unless no contender has two points.
fn picture(
    dir: &Path,
    file: &str,
    axes: &Axes<'_>,
    lines: &Lines,
    pictures: &mut Vec<Picture>,
) -> Outcome<()> {
    if !lines.values().any(|points| points.len() > 1) {
        return Ok(());
    }
    let path = dir.join(file);
    let area = SVGBackend::new(&path, SIZE).into_drawing_area();
    chart(&area, axes, lines).map_err(|error| format!("cannot draw {file}: {error}"))?;
    pictures.push(Picture { file: file.to_owned(), about: axes.title.to_owned() });
    Ok(())
}

fn chart(
    area: &DrawingArea<SVGBackend<'_>, Shift>,
    axes: &Axes<'_>,
    lines: &Lines,
) -> Result<(), Box<dyn Error>> {
    area.fill(&WHITE)?;
    let points = || lines.values().flatten();
    let across = ends(points().map(|point| point.0));
    let up = ends(points().map(|point| point.1));
    let mut chart = ChartBuilder::on(area);
    chart.caption(axes.title, ("sans-serif", 18)).margin(12);
    chart.x_label_area_size(42).y_label_area_size(70);
    // Two types of charts that are drawn alike.
    macro_rules! drawn {
        ($up:expr) => {{
            let mut chart = chart.build_cartesian_2d((across.0..across.1).log_scale(), $up)?;
            chart.configure_mesh().x_desc(axes.across).y_desc(axes.up).draw()?;
            for (at, (name, points)) in lines.iter().enumerate() {
                let color = Palette99::pick(at).stroke_width(2);
                chart
                    .draw_series(LineSeries::new(points.iter().copied(), color))?
                    .label(name)
                    .legend(move |(x, y)| PathElement::new([(x, y), (x + 18, y)], color));
                chart.draw_series(
                    points.iter().filter(|_| points.len() < 9).map(|&at| Circle::new(at, 3, color)),
                )?;
            }
            let mut labels = chart.configure_series_labels();
            labels.position(SeriesLabelPosition::LowerRight);
            labels.background_style(WHITE.mix(0.8)).border_style(BLACK.mix(0.3)).draw()?;
        }};
    }
    if axes.is_log_up {
        drawn!((up.0..up.1).log_scale());
    } else {
        drawn!(0.0..100.0);
    }
    area.present()?;
    Ok(())
}

/// A little beyond the least and the most.
fn ends(values: impl Iterator<Item = f64>) -> (f64, f64) {
    let (least, most) = values.fold((f64::MAX, f64::MIN_POSITIVE), |(least, most), value| {
        (least.min(value), most.max(value))
    });
    (least / 1.2, most * 1.2)
}
