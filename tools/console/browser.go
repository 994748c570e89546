package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/chromedp/cdproto/emulation"
	cdplog "github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
)

// browser is one tab of Chromium, and what is wrong with what it was shown.
type browser struct {
	ctx      context.Context //nolint:containedctx // of the tab
	close    func()
	axe      string // its source
	pictures string // a directory; empty: none are written

	mu     sync.Mutex
	faults []string
	allow  string // an error of the browser's that is expected now; empty: none is
}

// openBrowser starts Chromium, with a profile of its own.
func openBrowser(ctx context.Context, chromium, axe, pictures string) (*browser, error) {
	profile, err := os.MkdirTemp("", "chubby-console-*")
	if err != nil {
		return nil, err
	}
	options := append([]chromedp.ExecAllocatorOption{}, chromedp.DefaultExecAllocatorOptions[:]...)
	options = append(options, chromedp.ExecPath(chromium), chromedp.UserDataDir(profile), chromedp.NoSandbox, chromedp.DisableGPU)
	for _, flag := range []string{"disable-quic", "no-first-run", "disable-background-networking", "disable-component-update", "disable-sync", "ignore-certificate-errors", "hide-scrollbars"} {
		options = append(options, chromedp.Flag(flag, true))
	}
	allocated, stop := chromedp.NewExecAllocator(ctx, options...)
	tab, cancel := chromedp.NewContext(allocated)
	b := &browser{ctx: tab, axe: axe, pictures: pictures, close: func() {
		cancel()
		stop()
		_ = os.RemoveAll(profile)
	}}
	chromedp.ListenTarget(tab, b.hear)
	return b, chromedp.Run(tab, cdplog.Enable(), runtime.Enable())
}

// hear notes what the browser complains of.
func (b *browser) hear(event any) {
	switch e := event.(type) {
	case *runtime.EventExceptionThrown:
		b.fault("an exception: %s", e.ExceptionDetails.Error())
	case *runtime.EventConsoleAPICalled:
		if e.Type == runtime.APITypeError || e.Type == runtime.APITypeWarning {
			var words []string
			for _, a := range e.Args {
				words = append(words, string(a.Value)+a.Description)
			}
			b.fault("the browser's console: %s", strings.Join(words, " "))
		}
	case *cdplog.EventEntryAdded:
		if e.Entry.Level == cdplog.LevelError || e.Entry.Level == cdplog.LevelWarning {
			b.fault("the browser's log: %s (%s)", e.Entry.Text, e.Entry.URL)
		}
	}
}

// fault notes something that is wrong.
func (b *browser) fault(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.allow != "" && strings.Contains(text, b.allow) {
		return
	}
	b.faults = append(b.faults, text)
	fmt.Println("FAULT:", text)
}

// run does something in bounded time.
func (b *browser) run(actions ...chromedp.Action) error {
	ctx, cancel := context.WithTimeout(b.ctx, 30*time.Second)
	defer cancel()
	return chromedp.Run(ctx, actions...)
}

// look is how a page is looked at.
type look struct {
	name          string
	width, height int64
	dark          bool
}

func looks() []look {
	return []look{{"wide-light", 1280, 800, false}, {"wide-dark", 1280, 800, true}, {"narrow-light", 390, 844, false}, {"narrow-dark", 390, 844, true}}
}

func (b *browser) as(l look) error {
	scheme := "light"
	if l.dark {
		scheme = "dark"
	}
	return b.run(
		chromedp.EmulateViewport(l.width, l.height),
		emulation.SetEmulatedMedia().WithFeatures([]*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}}),
	)
}

// visit opens a page, waits until text is on it, and checks it in every look. picture is the name of its pictures; "" if none are wanted.
func (b *browser) visit(address, text, picture string) error {
	for _, l := range looks() {
		if err := b.as(l); err != nil {
			return err
		}
		if err := b.run(chromedp.Navigate(address)); err != nil {
			return fmt.Errorf("%s: %w", address, err)
		}
		if err := b.await(text); err != nil {
			return fmt.Errorf("%s, %s: %w", address, l.name, err)
		}
		b.checkPage(address, l)
		if picture == "" || b.pictures == "" {
			continue
		}
		var image []byte
		if err := b.run(chromedp.FullScreenshot(&image, 100)); err != nil {
			return fmt.Errorf("a picture of %s: %w", address, err)
		}
		if err := os.WriteFile(filepath.Join(b.pictures, picture+"-"+l.name+".png"), image, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// await waits until a text is on the page.
func (b *browser) await(text string) error {
	ctx, cancel := context.WithTimeout(b.ctx, 15*time.Second)
	defer cancel()
	var there bool
	for {
		err := chromedp.Run(ctx, chromedp.Evaluate(fmt.Sprintf("document.body && document.body.innerText.includes(%q)", text), &there))
		if err == nil && there {
			return nil
		}
		select {
		case <-ctx.Done():
			var body string
			_ = b.run(chromedp.Evaluate("document.body.innerText", &body))
			return fmt.Errorf("%q does not come; the page says:\n%s", text, body)
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// checkPage looks for what keeps people from using the page that is open.
func (b *browser) checkPage(address string, l look) {
	var found []struct {
		ID, Impact, Help string
		Nodes            []struct{ HTML string }
	}
	await := func(p *runtime.EvaluateParams) *runtime.EvaluateParams { return p.WithAwaitPromise(true) }
	err := b.run(
		chromedp.Evaluate(b.axe+"; 0", nil),
		chromedp.Evaluate(`axe.run(document, {resultTypes: ["violations"]}).then(r => r.violations)`, &found, await),
	)
	if err != nil {
		b.fault("%s, %s: axe: %v", address, l.name, err)
	}
	for _, v := range found {
		if v.Impact == "serious" || v.Impact == "critical" {
			b.fault("%s, %s: axe: %s, %s: %s, as in %s", address, l.name, v.Impact, v.ID, v.Help, v.Nodes[0].HTML)
		}
	}
	var wide struct {
		Page, Window float64
		Who          string
	}
	err = b.run(chromedp.Evaluate(`({page: document.documentElement.scrollWidth, window: innerWidth})`, &wide))
	if err != nil || wide.Page > wide.Window {
		b.fault("%s, %s: the page is %v wide, and the window %v (%v)", address, l.name, wide.Page, wide.Window, err)
	}
	var cut []string // cells of cards that are cut off, or whose label lies over the next one
	err = b.run(chromedp.Evaluate(`[...document.querySelectorAll("table:not(.timeline) tbody tr > *")].filter(e => getComputedStyle(e).display != "table-cell" &&
		(e.scrollWidth > e.clientWidth + 1 || e.scrollHeight > e.clientHeight + 1)).map(e => e.dataset.label + ": " + e.textContent.trim())`, &cut))
	if err != nil || len(cut) > 0 {
		b.fault("%s, %s: these do not fit: %q (%v)", address, l.name, cut, err)
	}
}

// firstPaint returns how long after its beginning the page that is open had painted something, in milliseconds.
func (b *browser) firstPaint() (ms float64, err error) {
	for range 50 {
		err = b.run(chromedp.Evaluate(`(performance.getEntriesByName("first-contentful-paint")[0] || {startTime: -1}).startTime`, &ms))
		if err != nil || ms >= 0 {
			return ms, err
		}
		time.Sleep(100 * time.Millisecond) // the page is there, and not painted yet
	}
	return ms, errors.New("nothing was painted")
}
