//! Tables and plots.

use std::path::Path;

use comfy_table::presets::UTF8_FULL_CONDENSED;
use comfy_table::{CellAlignment, Table};
use plotters::prelude::{
    BLUE, ChartBuilder, Color, IntoDrawingArea, IntoFont, RED, Rectangle, SVGBackend, WHITE,
};

/// One measure over all rounds: what each server gave, round by round.
pub struct Row {
    /// What was measured, with its unit.
    pub measure: String,
    /// etcd's values.
    pub etcd: Vec<f64>,
    /// Ours.
    pub ours: Vec<f64>,
}

impl Row {
    /// The ratio ours to etcd's in each round, sorted.
    fn ratios(&self) -> Vec<f64> {
        let mut ratios: Vec<f64> =
            self.etcd.iter().zip(&self.ours).map(|(etcd, ours)| ours / etcd).collect();
        ratios.sort_by(f64::total_cmp);
        ratios
    }
}

/// A table of what has no counterpart.
pub fn facts(rows: &[(String, String)]) -> String {
    let mut table = Table::new();
    table.load_style(UTF8_FULL_CONDENSED);
    table.set_header(["measure", "ringbolt"]);
    for (measure, value) in rows {
        table.add_row([measure, value]);
    }
    table.to_string()
}

fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len() / 2).copied().unwrap_or(f64::NAN)
}

/// A table: medians, the median ratio and its spread over the rounds.
pub fn table(rows: &[Row]) -> String {
    let mut table = Table::new();
    table.load_style(UTF8_FULL_CONDENSED);
    table.set_header(["measure", "etcd 3.7.3", "ringbolt", "ratio", "lowest", "highest"]);
    for row in rows {
        let ratios = row.ratios();
        let edge = |ratio: Option<&f64>| ratio.map_or(String::from("-"), |r| format!("{r:.2}"));
        table.add_row([
            row.measure.clone(),
            number(median(&row.etcd)),
            number(median(&row.ours)),
            format!("{:.2}", median(&ratios)),
            edge(ratios.first()),
            edge(ratios.last()),
        ]);
    }
    for column in 1..6 {
        if let Some(column) = table.column_mut(column) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table.to_string()
}

fn number(value: f64) -> String {
    if value >= 100.0 { format!("{value:.0}") } else { format!("{value:.2}") }
}

/// Bars of the ratios, one for each measure: below 1 is less than etcd.
pub fn plot(rows: &[Row], path: &Path) -> Result<(), Box<dyn std::error::Error>> {
    let height = u32::try_from(rows.len() * 34 + 90)?;
    let area = SVGBackend::new(path, (900, height)).into_drawing_area();
    area.fill(&WHITE)?;
    let count = i32::try_from(rows.len())?;
    let widest = rows.iter().map(|row| median(&row.ratios())).fold(2.0, f64::max);
    let mut chart = ChartBuilder::on(&area)
        .caption("ringbolt ÷ etcd 3.7.3 (median of rounds)", ("sans-serif", 18).into_font())
        .margin(12)
        .x_label_area_size(30)
        .y_label_area_size(330)
        .build_cartesian_2d(0.0..widest * 1.05, 0..count)?;
    let label = |row: &i32| {
        let at = usize::try_from(*row).ok();
        at.and_then(|at| rows.get(at)).map_or(String::new(), |row| row.measure.clone())
    };
    chart.configure_mesh().y_labels(rows.len()).y_label_formatter(&label).draw()?;
    for (index, row) in rows.iter().enumerate() {
        let at = i32::try_from(index)?;
        let ratio = median(&row.ratios());
        let colour = if ratio <= 1.0 { BLUE.filled() } else { RED.mix(0.6).filled() };
        chart.draw_series([Rectangle::new([(0.0, at), (ratio, at + 1)], colour)])?;
    }
    area.present()?;
    Ok(())
}
