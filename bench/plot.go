package main

import (
	"bytes"
	"fmt"
	"image/color"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"
)

// figure is a plot of the page: one line a row, one dot a system, on a logarithmic axis.
type figure struct {
	file, axis string
	include    func(key) bool
	of         func(sample) float64 // not shown unless positive
}

// figures lists the plots.
func figures() []figure {
	micros := func(of func(sample) float64) func(sample) float64 {
		return func(s sample) float64 { return of(s) / 1000 }
	}
	millis := func(of func(sample) float64) func(sample) float64 {
		return func(s sample) float64 { return of(s) / 1e6 }
	}
	served := func(k key) bool { return isLoop(k) && !isCached(k) }
	return []figure{
		{"rates.svg", "operations a second (more is better)", served, func(s sample) float64 { return s.Rate }},
		{"latency.svg", "p99 in milliseconds (less is better)", served, millis(func(s sample) float64 { return float64(s.P99) })},
		{"processor.svg", "processor time of all servers, µs an operation (less is better)", served, micros(func(s sample) float64 { return float64(s.ServerCPU) })},
		{"open.svg", "p99 in milliseconds, from when an operation was due (less is better)", isOpenLoop, millis(func(s sample) float64 { return float64(s.P99) })},
		{"acquisitions.svg", "mean wait for the lock in milliseconds (less is better)", func(k key) bool { return k.Row == acquisitions }, millis(func(s sample) float64 { return float64(s.WaitMean) })},
		{"times.svg", "median in milliseconds (less is better)", isSingle, millis(func(s sample) float64 { return float64(s.P50) })},
	}
}

// draw writes the plots to a directory, and returns the names of those that have dots.
func (r *record) draw(dir string, figures []figure) ([]string, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	var files []string
	for _, f := range figures {
		drawn, err := f.draw(r, dir)
		if err != nil {
			return nil, fmt.Errorf("draw %s: %w", f.file, err)
		}
		if drawn {
			files = append(files, f.file)
		}
	}
	return files, nil
}

func (f figure) draw(r *record, dir string) (bool, error) {
	keys := slices.DeleteFunc(r.keys(), func(k key) bool { return !f.include(k) })
	slices.Reverse(keys) // the first row is the topmost
	labels := make([]string, len(keys))
	for i, k := range keys {
		labels[i] = k.String()
	}
	p := plot.New()
	p.X.Label.Text = f.axis
	p.X.Scale, p.X.Tick.Marker = plot.LogScale{}, decades{}
	for _, style := range []*draw.TextStyle{&p.X.Label.TextStyle, &p.X.Tick.Label, &p.Y.Tick.Label, &p.Legend.TextStyle} {
		style.Font.Variant = "Sans"
	}
	grid := plotter.NewGrid()
	grid.Horizontal.Color, grid.Vertical.Color = color.Gray{Y: 225}, color.Gray{Y: 225}
	p.Add(grid)
	dots := 0
	for i, name := range r.names() {
		var points plotter.XYs
		for y, k := range keys {
			if m, ok := r.median(k, name); ok && f.of(m) > 0 {
				points = append(points, plotter.XY{X: f.of(m), Y: float64(y)})
			}
		}
		if len(points) == 0 {
			continue
		}
		dots += len(points)
		scatter, err := plotter.NewScatter(points)
		if err != nil {
			return false, err
		}
		scatter.GlyphStyle = look(i)
		p.Add(scatter)
		p.Legend.Add(name, scatter)
	}
	if dots == 0 {
		return false, nil
	}
	p.NominalY(labels...)
	p.X.Min, p.X.Max = p.X.Min/1.5, p.X.Max*1.5 // so that no dot is on the frame
	p.Y.Min, p.Y.Max = -0.7, float64(len(keys))-0.3
	return true, save(p, vg.Points(60+20*float64(max(len(keys), len(r.names())))), filepath.Join(dir, f.file))
}

// save writes a plot, with its legend to the right of it.
func save(p *plot.Plot, height vg.Length, file string) error {
	const width, left, right, edge = vg.Length(660), 25, 90, 6 // a viewer's font may be wider than the one that is laid out
	svg := vgsvg.New(width, height)
	whole := draw.New(svg)
	whole.SetColor(color.White)
	whole.Fill(whole.Rectangle.Path())
	legend := p.Legend
	legend.Top, legend.Left, legend.Padding = true, true, vg.Points(3)
	legend.Draw(draw.Crop(whole, width-right, 0, 0, -2*edge))
	p.Legend = plot.NewLegend()
	p.Draw(draw.Crop(whole, left, -right, edge, -edge))
	var text bytes.Buffer
	if _, err := svg.WriteTo(&text); err != nil {
		return err
	}
	fonts := bytes.ReplaceAll(text.Bytes(), []byte("font-family:Liberation Sans;"), []byte("font-family:Liberation Sans,Arial,Helvetica,sans-serif;"))
	return os.WriteFile(file, fonts, 0o644)
}

// decades marks 1, 2 and 5 of each power of ten. If there are many it names the powers only.
type decades struct{}

func (decades) Ticks(low, high float64) []plot.Tick {
	var ticks []plot.Tick
	for power := math.Pow10(int(math.Floor(math.Log10(low)))); power <= high; power *= 10 {
		for _, digit := range []float64{1, 2, 5} {
			value := digit * power
			if value < low || value > high {
				continue
			}
			tick := plot.Tick{Value: value}
			if digit == 1 || high/low < 200 {
				tick.Label = strconv.FormatFloat(value, 'f', -1, 64)
			}
			ticks = append(ticks, tick)
		}
	}
	return ticks
}

// look is the shape and the colour of a system, told apart also without colours.
func look(i int) draw.GlyphStyle {
	looks := []draw.GlyphStyle{
		{Color: color.RGBA{R: 0xd5, G: 0x5e, A: 0xff}, Shape: draw.CircleGlyph{}},
		{Color: color.RGBA{G: 0x72, B: 0xb2, A: 0xff}, Shape: draw.BoxGlyph{}},
		{Color: color.RGBA{G: 0x9e, B: 0x73, A: 0xff}, Shape: draw.PyramidGlyph{}},
		{Color: color.RGBA{R: 0x77, G: 0x77, B: 0x77, A: 0xff}, Shape: draw.RingGlyph{}},
	}
	style := looks[i%len(looks)]
	style.Radius = vg.Points(4)
	return style
}
