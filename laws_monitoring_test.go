package chubby_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const (
	alertRules = "deploy/prometheus/alerts.yaml"
	alertTests = "deploy/prometheus/alerts_test.yaml"
	dashboard  = "deploy/grafana/chubby.json"
)

// Every metric that an alert, the dashboard or a page names is one that a replica or a program serves: a metric that was renamed is
// found here, and not by an alert that never fires again. What has changed before, CHANGELOG.md may tell.
func TestWatchedMetricsExist(t *testing.T) {
	served := servedMetrics(t)
	pages, err := filepath.Glob("docs/*.md")
	if err != nil || len(pages) < 10 {
		t.Fatalf("%d pages: %v", len(pages), err)
	}
	ours := regexp.MustCompile(`\bchubby(?:client)?_[a-z_]*[a-z]\b`)
	selected := regexp.MustCompile(`\b([a-zA-Z_]\w*)(?:\[|\{[^{])`) // in PromQL, and not before the {{ of a template
	for _, name := range append(pages, "README.md", "CONTRIBUTING.md", alertRules, alertTests, dashboard) {
		text := textOf(t, name)
		for _, metric := range ours.FindAllString(text, -1) {
			if !served[metric] {
				t.Errorf("%s: %s is neither in docs/metrics.md nor in docs/client-metrics.md", name, metric)
			}
		}
		if filepath.Ext(name) == ".md" {
			continue
		}
		for _, match := range selected.FindAllStringSubmatch(text, -1) {
			if metric := match[1]; !served[metric] && !servedByOthers(metric) {
				t.Errorf("%s: %s{ is neither in docs/metrics.md, nor in docs/client-metrics.md, nor a metric of the process or of Prometheus", name, metric)
			}
		}
	}
}

// servedMetrics are the names that queries may use: those of docs/metrics.md and docs/client-metrics.md, and the parts of
// histograms.
func servedMetrics(t *testing.T) map[string]bool {
	t.Helper()
	served := map[string]bool{}
	tables := textOf(t, "docs/metrics.md") + textOf(t, "docs/client-metrics.md")
	for _, row := range regexp.MustCompile("(?m)^\\| `(chubby(?:client)?_\\w+)` \\| (\\w+) \\|").FindAllStringSubmatch(tables, -1) {
		served[row[1]] = true
		if row[2] == "histogram" {
			for _, part := range []string{"_bucket", "_count", "_sum"} {
				served[row[1]+part] = true
			}
		}
	}
	if len(served) < 60 {
		t.Fatalf("docs/metrics.md and docs/client-metrics.md list %d metrics: the pattern of this law does not fit it any more", len(served))
	}
	return served
}

func servedByOthers(metric string) bool {
	return strings.HasPrefix(metric, "go_") || strings.HasPrefix(metric, "process_") || metric == "up" || metric == "ALERTS"
}

// Whom an alert wakes finds what to do under a heading of its own, and no heading is of an alert that is gone. Each has a
// test that it fires, and one that it does not.
func TestAlertsHaveRunbooks(t *testing.T) {
	rules, tests := textOf(t, alertRules), textOf(t, alertTests)
	alerts := firstGroups(`(?m)^ +- alert: (\w+)$`, rules)
	if len(alerts) < 20 {
		t.Fatalf("%s has %d alerts: the pattern of this law does not fit it any more", alertRules, len(alerts))
	}
	if headings := firstGroups(`(?m)^### Alert: (\w+)$`, textOf(t, "docs/operations.md")); !slices.Equal(alerts, headings) {
		t.Errorf("the alerts of %s and the headings of docs/operations.md are not the same, in the same order:\n%v\n%v", alertRules, alerts, headings)
	}
	for i, rule := range strings.Split(rules, "- alert: ")[1:] {
		for _, want := range []string{
			"expr: ", "summary: ", "description: ", "Next: ",
			"docs/operations.md#alert-" + strings.ToLower(alerts[i]) + "\n",
		} {
			if strings.Count(rule, want) != 1 {
				t.Errorf("%s: %s needs %q once", alertRules, alerts[i], want)
			}
		}
		if !regexp.MustCompile(`severity: (critical|warning|info)\n`).MatchString(rule) {
			t.Errorf("%s: %s has no severity that docs/monitoring.md explains", alertRules, alerts[i])
		}
		for _, want := range []string{"- name: " + alerts[i] + " fires\n", "- name: " + alerts[i] + " does not fire\n"} {
			if !strings.Contains(tests, want) {
				t.Errorf("%s has no %q", alertTests, strings.TrimSpace(want))
			}
		}
	}
}

// Each panel of the dashboard says what it shows, in which unit, and keeps its id, by which links lead to it.
func TestDashboardIsExplained(t *testing.T) {
	var board struct {
		Panels []struct {
			ID                       int
			Type, Title, Description string
			FieldConfig              struct{ Defaults struct{ Unit string } }
		}
	}
	if err := json.Unmarshal([]byte(textOf(t, dashboard)), &board); err != nil {
		t.Fatalf("%s: %v", dashboard, err)
	}
	ids := map[int]bool{}
	for _, p := range board.Panels {
		if p.ID == 0 || ids[p.ID] {
			t.Errorf("%s: panel %q has no id of its own", dashboard, p.Title)
		}
		ids[p.ID] = true
		if p.Title == "" || p.Type != "row" && (p.Description == "" || p.FieldConfig.Defaults.Unit == "") {
			t.Errorf("%s: panel %d, %q, needs a title, a description and a unit", dashboard, p.ID, p.Title)
		}
	}
}

func firstGroups(pattern, text string) (list []string) {
	for _, match := range regexp.MustCompile(pattern).FindAllStringSubmatch(text, -1) {
		list = append(list, match[1])
	}
	return list
}

func textOf(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
