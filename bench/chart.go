package main

import (
	"fmt"
	"image/color"
	"path/filepath"
	"slices"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// colours is the palette of Okabe and Ito, which is suitable for colour-blind readers.
var colours = []color.Color{
	color.RGBA{A: 255}, color.RGBA{R: 213, G: 94, A: 255}, color.RGBA{G: 114, B: 178, A: 255}, color.RGBA{R: 86, G: 180, B: 233, A: 255},
	color.RGBA{G: 158, B: 115, A: 255}, color.RGBA{R: 230, G: 159, A: 255}, color.RGBA{R: 204, G: 121, B: 167, A: 255},
}

// glyph returns the glyph of contestant i: a dot, or a triangle when the colours repeat.
func glyph(i int) draw.GlyphStyle {
	g := draw.GlyphStyle{Color: colours[i%len(colours)], Radius: vg.Points(3), Shape: draw.CircleGlyph{}}
	if i >= len(colours) {
		g.Shape = draw.PyramidGlyph{}
	}
	return g
}

// charted are the metrics that get a chart in addition to the first metric of a suite.
var charted = []string{"p99"}

// writeCharts draws a chart for each suite, with dots for medians and lines from minimum to
// maximum.
func (r *Results) writeCharts(dir string) (names []string, err error) {
	for _, suite := range r.suites() {
		drawn, err := suite.writeCharts(dir)
		if err != nil {
			return names, err
		}
		names = append(names, drawn...)
	}
	return names, nil
}

// panel has the tables of a chart.
type panel struct {
	suite  string
	tables []Table
}

func (r *Results) suites() (panels []panel) {
	var open *panel
	for _, t := range r.Tables {
		alike := func(p panel) bool { return p.suite == t.Suite && p.tables[0].Metrics[0] == t.Metrics[0] }
		if i := slices.IndexFunc(panels, alike); i >= 0 {
			open = &panels[i]
		} else {
			panels = append(panels, panel{suite: t.Suite})
			open = &panels[len(panels)-1]
		}
		open.tables = append(open.tables, t)
	}
	return panels
}

func (p panel) writeCharts(dir string) (names []string, err error) {
	for m, metric := range p.tables[0].Metrics {
		if m > 0 && !slices.Contains(charted, metric.Name) {
			continue
		}
		name := fmt.Sprintf("%s-%s.svg", p.suite, slug(metric.Name))
		if err := p.draw(m, filepath.Join(dir, name)); err != nil {
			return names, err
		}
		names = append(names, name)
	}
	curve, ok := p.curve()
	if !ok {
		return names, nil
	}
	name := p.suite + "-curve.svg"
	return append(names, name), curve.drawCurve(filepath.Join(dir, name))
}

func slug(name string) string {
	out := []rune{}
	for _, c := range name {
		switch {
		case c >= 'A' && c <= 'Z':
			out = append(out, c+'a'-'A')
		case c >= 'a' && c <= 'z' || c >= '0' && c <= '9':
			out = append(out, c)
		}
	}
	return string(out)
}

// newPlot returns a plot with a logarithmic scale for the metric.
func newPlot(title string, m Metric) *plot.Plot {
	p := plot.New()
	p.Title.Text = title
	p.Y.Label.Text = m.Name
	if m.Unit != "" {
		p.Y.Label.Text += ", " + m.Unit
	}
	p.Y.Scale = plot.LogScale{}
	p.Y.Tick.Marker = plot.LogTicks{Prec: -1}
	p.Legend.Top = true
	p.Legend.TextStyle.Font.Size = vg.Points(9)
	p.BackgroundColor = color.White
	p.Add(plotter.NewGrid())
	return p
}

func (p panel) draw(metric int, path string) error {
	m := p.tables[0].Metrics[metric]
	better := "less is better"
	if m.More {
		better = "more is better"
	}
	chart := newPlot(p.suite+": "+better, m)
	rows := p.tables[0].Rows
	for i, row := range rows {
		offset := (float64(i) - float64(len(rows)-1)/2) * 0.8 / float64(len(rows))
		if err := addDots(chart, p.dots(row.Contestant, metric, offset), row.Contestant, i); err != nil {
			return err
		}
	}
	nameCases(chart, p.tables)
	return save(chart, path, vg.Length(220+110*len(p.tables)))
}

// nameCases numbers the cases on the axis and lists their names in its label.
func nameCases(chart *plot.Plot, tables []Table) {
	var ticks plot.ConstantTicks
	label := ""
	for i, t := range tables {
		ticks = append(ticks, plot.Tick{Value: float64(i), Label: fmt.Sprint(i + 1)})
		label += fmt.Sprintf("%d: %s (%s)\n", i+1, t.Case, t.Durability)
	}
	chart.X.Tick.Marker = ticks
	chart.X.Label.Text = label
	chart.X.Min, chart.X.Max = -0.5, float64(len(tables))+0.7 // room for the legend
	if chart.Y.Min >= chart.Y.Max {                           // no value, or a single value
		chart.Y.Min, chart.Y.Max = 0.1, max(1, 10*chart.Y.Max)
	}
}

// points are values with their ranges, as required by plotter.YErrorBars.
type points struct {
	plotter.XYs
	plotter.YErrors
}

// dots returns the cells of a contestant. Zeros are omitted, because the scale is logarithmic.
func (p panel) dots(contestant string, metric int, offset float64) (out points) {
	for i := range p.tables {
		row := p.tables[i].row(contestant)
		if row == nil || len(row.Cells) <= metric || row.Cells[metric].Min <= 0 {
			continue
		}
		c := row.Cells[metric]
		out.add(float64(i)+offset, c)
	}
	return out
}

func (p *points) add(x float64, c Cell) {
	p.XYs = append(p.XYs, plotter.XY{X: x, Y: c.Median})
	p.YErrors = append(p.YErrors, struct{ Low, High float64 }{c.Median - c.Min, c.Max - c.Median})
}

func addDots(chart *plot.Plot, at points, name string, i int) error {
	if len(at.XYs) == 0 {
		return nil
	}
	dots, err := plotter.NewScatter(at.XYs)
	if err != nil {
		return err
	}
	dots.GlyphStyle = glyph(i)
	bars, err := plotter.NewYErrorBars(at)
	if err != nil {
		return err
	}
	bars.Color = colours[i%len(colours)]
	chart.Add(dots, bars)
	chart.Legend.Add(name, dots)
	return nil
}

// curve returns the tables that are points of a curve. It reports whether there are any.
func (p panel) curve() (panel, bool) {
	out := panel{suite: p.suite}
	for _, t := range p.tables {
		if t.Curve != "" {
			out.tables = append(out.tables, t)
		}
	}
	return out, len(out.tables) > 1
}

// drawCurve draws the growth along a logarithmic axis, on which 0 is drawn at 1.
func (p panel) drawCurve(path string) error {
	chart := newPlot(p.suite+": growth", p.tables[0].Metrics[0])
	chart.X.Label.Text = p.tables[0].Curve
	chart.X.Scale = plot.LogScale{}
	chart.X.Tick.Marker = plot.LogTicks{Prec: -1}
	for i, row := range p.tables[0].Rows {
		var line points
		for j := range p.tables {
			if r := p.tables[j].row(row.Contestant); r != nil && len(r.Cells) > 0 && r.Cells[0].Min > 0 {
				line.add(max(1, p.tables[j].X), r.Cells[0])
			}
		}
		if err := addLine(chart, line, row.Contestant, i); err != nil {
			return err
		}
	}
	if chart.Y.Min >= chart.Y.Max {
		chart.Y.Min, chart.Y.Max = 0.1, max(1, 10*chart.Y.Max)
	}
	chart.X.Min, chart.X.Max = 1, max(10, p.tables[len(p.tables)-1].X)
	chart.Legend.Left = true
	chart.Y.Max *= 10 // room for the legend
	return save(chart, path, 640)
}

func addLine(chart *plot.Plot, at points, name string, i int) error {
	if len(at.XYs) == 0 {
		return nil
	}
	line, err := plotter.NewLine(at.XYs)
	if err != nil {
		return err
	}
	line.Color = colours[i%len(colours)]
	line.Width = vg.Points(1.5)
	chart.Add(line)
	return addDots(chart, at, name, i)
}

func save(chart *plot.Plot, path string, width vg.Length) error {
	return chart.Save(width, 420, path)
}
