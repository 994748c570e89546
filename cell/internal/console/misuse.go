package console

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/misuse"
)

// misusePage lists the clients that misuse the cell, by rule, like chubbyctl lint. The master decides what a
// visitor sees: operators see everything.
type misusePage struct {
	Epoch  api.Epoch
	Since  time.Duration // how long its master has counted
	Broken []brokenRule  // the one with the worst finding first
	More   int           // further findings
}

type brokenRule struct {
	Kind     misuse.Kind
	Findings []misuse.Finding
}

func (c *Console) misuse(ctx context.Context, v *visitor, _ *http.Request) (string, page, error) {
	content := misusePage{}
	p := page{Title: "Misuse", Nav: "misuse", Every: 5, Content: &content}
	report, err := v.cell.Lint(ctx, misuse.Options{Most: maxRows})
	content.Epoch, content.Since, content.More = report.Epoch, report.Since, report.More
	at := map[misuse.Kind]int{} // index of Broken
	for _, f := range report.Findings {
		i, ok := at[f.Kind]
		if !ok {
			i = len(content.Broken)
			at[f.Kind] = i
			content.Broken = append(content.Broken, brokenRule{Kind: f.Kind})
		}
		content.Broken[i].Findings = append(content.Broken[i].Findings, f)
	}
	return "misuse", p, err
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
