package console

import (
	"context"
	"fmt"
	"net/http"

	"github.com/chubbylock/chubby/misuse"
)

// misusePage lists the clients that misuse the cell, by rule, like chubbyctl lint. The master decides what a
// visitor sees: operators see everything.
type misusePage struct {
	misuse.Report
	Broken [][]misuse.Finding // those of one kind together, the kind of the worst first
}

func (c *Console) misuse(ctx context.Context, v *visitor, _ *http.Request, p *page) (err error) {
	content := misusePage{}
	p.Content = &content
	content.Report, err = v.cell.Lint(ctx, misuse.Options{Most: maxRows})
	at := map[misuse.Kind]int{} // index of Broken
	for _, f := range content.Findings {
		i, ok := at[f.Kind]
		if !ok {
			i = len(content.Broken)
			at[f.Kind] = i
			content.Broken = append(content.Broken, nil)
		}
		content.Broken[i] = append(content.Broken[i], f)
	}
	return err
}

func howOften(f misuse.Finding) string {
	switch {
	case f.Lease > 0:
		return "a lease of " + roughly(f.Lease)
	case f.Share > 0:
		return fmt.Sprintf("%s, %.0f %% of all", grouped(f.Count), 100*f.Share)
	}
	return grouped(f.Count)
}

func aSecond(f misuse.Finding) string {
	if f.Lease > 0 {
		return ""
	}
	return fmt.Sprintf("%.1f", f.PerSecond())
}
