//! Memory, disk and latency of a soak over time, one panel each.

use std::error::Error;
use std::path::Path;

use plotters::coord::Shift;
use plotters::prelude::{
    BLUE, ChartBuilder, Color, DrawingArea, IntoDrawingArea, IntoFont, LineSeries, RED, RGBColor,
    SVGBackend, WHITE,
};

use crate::measures::number;
use crate::soak::verdict::{Sample, disk_bounds};

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type Line = (RGBColor, Vec<(f64, f64)>);

/// Writes the plot.
pub fn write(samples: &[Sample], path: &Path) -> Result<(), Box<dyn Error>> {
    let area = SVGBackend::new(path, (900, 780)).into_drawing_area();
    area.fill(&WHITE)?;
    let panels = area.split_evenly((3, 1));
    let line = |value: &dyn Fn(&Sample) -> f64| -> Vec<(f64, f64)> {
        samples.iter().map(|sample| (sample.at_s / 60.0, value(sample))).collect()
    };
    let mb = |bytes: u64| number(bytes / 10_000) / 100.0;
    let bounds = samples.iter().zip(disk_bounds(samples));
    let bounds = bounds.map(|(sample, bound)| (sample.at_s / 60.0, mb(bound))).collect();
    let memory = line(&|sample| mb(sample.resident_bytes));
    let disk = line(&|sample| mb(sample.disk_bytes));
    let latency = line(&|sample| number(sample.put_us.1) / 1000.0);
    panel(&panels[0], "resident memory, MB", &[(BLUE, memory)])?;
    panel(&panels[1], "disk, MB (red: the most it may take)", &[(RED, bounds), (BLUE, disk)])?;
    panel(&panels[2], "put p99 since due, ms", &[(BLUE, latency)])?;
    area.present()?;
    Ok(())
}

fn panel(area: &Area<'_>, caption: &str, lines: &[Line]) -> Result<(), Box<dyn Error>> {
    let points = || lines.iter().flat_map(|(_, points)| points);
    let right = points().map(|point| point.0).fold(0.0, f64::max);
    let top = points().map(|point| point.1).fold(0.0, f64::max);
    let mut chart = ChartBuilder::on(area)
        .caption(caption, ("sans-serif", 16).into_font())
        .margin(8)
        .x_label_area_size(24)
        .y_label_area_size(60)
        .build_cartesian_2d(0.0..right.max(0.01), 0.0..top.max(0.01) * 1.1)?;
    chart.configure_mesh().x_desc("minutes").draw()?;
    for (colour, points) in lines {
        chart.draw_series(LineSeries::new(points.iter().copied(), colour.stroke_width(1)))?;
    }
    Ok(())
}
