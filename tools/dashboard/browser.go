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

	cdplog "github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
)

// browser is one tab of Chromium, and what it complains of.
type browser struct {
	ctx   context.Context //nolint:containedctx // of the tab
	close func()

	mu     sync.Mutex
	faults []error
}

// openBrowser starts Chromium, with a profile of its own.
func openBrowser(ctx context.Context, chromium string) (*browser, error) {
	profile, err := os.MkdirTemp("", "chubby-dashboard-*")
	if err != nil {
		return nil, err
	}
	options := append([]chromedp.ExecAllocatorOption{}, chromedp.DefaultExecAllocatorOptions[:]...)
	options = append(options, chromedp.ExecPath(chromium), chromedp.UserDataDir(profile), chromedp.NoSandbox, chromedp.DisableGPU)
	for _, flag := range []string{"disable-quic", "no-first-run", "disable-background-networking", "disable-component-update", "disable-sync", "hide-scrollbars"} {
		options = append(options, chromedp.Flag(flag, true))
	}
	allocated, stop := chromedp.NewExecAllocator(ctx, options...)
	tab, cancel := chromedp.NewContext(allocated)
	b := &browser{ctx: tab, close: func() {
		cancel()
		stop()
		_ = os.RemoveAll(profile)
	}}
	chromedp.ListenTarget(tab, b.hear)
	return b, chromedp.Run(tab, cdplog.Enable(), runtime.Enable())
}

// hear notes what the browser complains of.
func (b *browser) hear(event any) {
	var fault error
	switch e := event.(type) {
	case *runtime.EventExceptionThrown:
		fault = fmt.Errorf("an exception: %s", e.ExceptionDetails.Error())
	case *runtime.EventConsoleAPICalled:
		if e.Type == runtime.APITypeError {
			var words []string
			for _, a := range e.Args {
				words = append(words, string(a.Value)+a.Description)
			}
			fault = fmt.Errorf("the browser's console: %s", strings.Join(words, " "))
		}
	case *cdplog.EventEntryAdded:
		if e.Entry.Level == cdplog.LevelError {
			fault = fmt.Errorf("the browser's log: %s (%s)", e.Entry.Text, e.Entry.URL)
		}
	}
	if fault != nil {
		b.mu.Lock()
		b.faults = append(b.faults, fault)
		b.mu.Unlock()
	}
}

// complaints returns all of them.
func (b *browser) complaints() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	return errors.Join(b.faults...)
}

// run does something in bounded time.
func (b *browser) run(actions ...chromedp.Action) error {
	ctx, cancel := context.WithTimeout(b.ctx, 3*time.Minute)
	defer cancel()
	return chromedp.Run(ctx, actions...)
}

// takePictures takes one of each row.
func (b *browser) takePictures(d drawn, dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	for _, row := range d.Rows {
		var image []byte
		if err := b.run(chromedp.Screenshot(fmt.Sprintf("#row-%d", row.ID), &image, chromedp.ByQuery)); err != nil {
			return fmt.Errorf("a picture of %s: %w", row.Title, err)
		}
		name := "dashboard-" + strings.ToLower(strings.ReplaceAll(row.Title, " ", "-")) + ".png"
		if err := os.WriteFile(filepath.Join(dir, name), image, 0o644); err != nil {
			return err
		}
	}
	return nil
}
