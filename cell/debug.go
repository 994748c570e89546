package cell

import (
	"bytes"
	"runtime/pprof"
	"slices"
	"strings"

	"github.com/chubbylock/chubby/api"
	"github.com/prometheus/common/expfmt"
)

// debugParts returns the parts of a replica's fault report. Parts that are in Config.Debug come from there.
func debugParts() []string { return []string{"metrics", "goroutines", "log", "config"} }

func (s served) Debug(principal, part string) ([]byte, error) {
	if err := s.r.fsm.State().PermitOperator(principal); err != nil {
		return nil, err
	}
	if !slices.Contains(debugParts(), part) {
		return nil, api.Errorf(api.InvalidArgument, "%.40q is none of %s", part, strings.Join(debugParts(), ", "))
	}
	var text bytes.Buffer
	switch part {
	case "metrics":
		families, err := s.r.metrics.registry.Gather()
		for _, f := range families {
			if _, err := expfmt.MetricFamilyToText(&text, f); err != nil {
				return nil, api.Errorf(api.Unavailable, "the metrics could not be written: %v", err)
			}
		}
		if err != nil {
			return nil, api.Errorf(api.Unavailable, "the metrics could not be gathered: %v", err)
		}
	case "goroutines":
		if err := pprof.Lookup("goroutine").WriteTo(&text, 1); err != nil { // groups goroutines with the same stack
			return nil, api.Errorf(api.Unavailable, "the goroutines could not be written: %v", err)
		}
	default:
		if own := s.r.cfg.Debug[part]; own != nil {
			return own(), nil
		}
	}
	return text.Bytes(), nil
}
