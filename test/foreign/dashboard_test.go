package foreign

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
)

// page is one run of everynode dashboard.
type page struct{ address, key string }

// dashboard starts the page with somebody's rights.
func (c *cluster) dashboard(t *testing.T, kubeconfig string) *page {
	t.Helper()
	c.pages++
	p := c.begin(fmt.Sprintf("dashboard-%d", c.pages), c.everynode, "dashboard", "--kubeconfig="+kubeconfig, "--port=0", "--no-browser")
	t.Cleanup(p.stop)
	var found string
	await(t, "the dashboard prints its address", func(context.Context) error {
		raw, err := os.ReadFile(p.log)
		if found = address.FindString(string(raw)); err == nil && found == "" {
			err = fmt.Errorf("it prints %q", raw)
		}
		return err
	})
	at, key, _ := strings.Cut(found, "/#key=")
	return &page{at, key}
}

// ask sends a request, and returns the body and the code.
func (p *page) ask(ctx context.Context, method, path, body string) (*http.Response, error) {
	r, err := http.NewRequestWithContext(ctx, method, p.address+path, strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	r.Header.Set("Authorization", "Bearer "+p.key)
	return http.DefaultClient.Do(r)
}

// get wants a value.
func (p *page) get(t *testing.T, path string, parameters url.Values, into any) {
	t.Helper()
	a, err := p.ask(t.Context(), http.MethodGet, path+"?"+parameters.Encode(), "")
	if err != nil {
		t.Fatal(err)
	}
	defer a.Body.Close()
	raw, err := io.ReadAll(a.Body)
	if err == nil && a.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", a.Status, raw)
	}
	if err == nil {
		err = json.Unmarshal(raw, into)
	}
	if err != nil {
		t.Fatalf("GET %s: %v", path, err)
	}
}

// do has something done to the rollout, and returns the code and what is said.
func (p *page) do(t *testing.T, verb string, more map[string]any) (int, string) {
	t.Helper()
	order := map[string]any{"daemonSet": "default/agent", "verb": verb}
	for k, v := range more {
		order[k] = v
	}
	raw, err := json.Marshal(order)
	if err != nil {
		t.Fatal(err)
	}
	a, err := p.ask(t.Context(), http.MethodPost, "/api/rollout", string(raw))
	if err != nil {
		t.Fatal(err)
	}
	defer a.Body.Close()
	said, err := io.ReadAll(a.Body)
	if err != nil {
		t.Fatal(err)
	}
	return a.StatusCode, string(said)
}

// lines reads a stream until enough says so.
func (p *page) lines(t *testing.T, what, path string, parameters url.Values, enough func(line []byte) bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	a, err := p.ask(ctx, http.MethodGet, path+"?"+parameters.Encode(), "")
	if err != nil {
		t.Fatal(err)
	}
	defer a.Body.Close()
	last := ""
	for lines := bufio.NewScanner(a.Body); lines.Scan(); {
		if enough(lines.Bytes()) {
			return
		}
		last = lines.Text()
	}
	t.Fatalf("%s: the stream ends (%s) with %.500s", what, a.Status, last)
}

type overview struct {
	Hidden     string
	Nodes      int
	DaemonSets []struct{ Name, Phase string }
}

func (p *page) overview(t *testing.T) (o overview) {
	t.Helper()
	p.lines(t, "the overview", "/api/stream", nil, func(line []byte) bool {
		var m struct{ Overview *overview }
		if err := json.Unmarshal(line, &m); err != nil {
			t.Fatal(err)
		}
		if m.Overview != nil {
			o = *m.Overview
		}
		return m.Overview != nil
	})
	return o
}

// shown is what the page is told of the DaemonSet.
type shown struct {
	UID        string
	Generation int64
	Numbers    map[string]int64
	Rollout    struct{ Phase, Step, TargetRevision, StableRevision string }
}

// undo is the order to go back to a revision from what is shown.
func (s shown) undo(revision string) map[string]any {
	return map[string]any{"uid": s.UID, "generation": s.Generation, "revision": revision}
}

// phase waits until the page shows a phase.
func (p *page) phase(t *testing.T, want string) (s shown) {
	t.Helper()
	p.lines(t, "the phase "+want, "/api/stream", url.Values{"daemonset": {"default/agent"}}, func(line []byte) bool {
		var m struct{ Set *shown }
		if err := json.Unmarshal(line, &m); err != nil {
			t.Fatal(err)
		}
		if m.Set != nil {
			s = *m.Set
		}
		return s.Rollout.Phase == want
	})
	return s
}

// page does on the page what was done by commands before.
func (c *cluster) page(t *testing.T) {
	p := c.dashboard(t, c.kubeconfig)
	if o := p.overview(t); o.Hidden != "" || o.Nodes != nodes || len(o.DaemonSets) != 1 || o.DaemonSets[0].Phase != "Complete" {
		t.Errorf("the overview is %+v", o)
	}
	c.kubectl(t, "apply", "-f", "agent-2.yaml")
	s := p.phase(t, "WaitingForApproval")
	c.browse(t, p)
	var why struct {
		Groups []struct {
			Verdict string
			Count   int
		}
	}
	p.get(t, "/api/why", url.Values{"daemonset": {"default/agent"}}, &why)
	if got := fmt.Sprint(why.Groups); got != "[{Waiting 10} {Current 2}]" {
		t.Errorf("the groups are %s", got)
	}
	var node struct {
		DaemonSets []struct{ Verdict string }
		Pods       []struct{ Phase string }
	}
	p.get(t, "/api/node", url.Values{"name": {"sim-0001"}}, &node)
	if len(node.DaemonSets) != 1 || len(node.Pods) == 0 {
		t.Errorf("the node is %+v", node)
	}
	may := map[string]bool{}
	p.get(t, "/api/rights", url.Values{"daemonset": {"default/agent"}}, &may)
	if !may["steer"] || !may["undo"] {
		t.Errorf("an administrator may %v", may)
	}
	if code, said := p.do(t, "approve", map[string]any{"step": s.Rollout.Step, "revision": s.Rollout.TargetRevision}); code != http.StatusOK {
		t.Errorf("approve: %d %s", code, said)
	}
	p.phase(t, "Complete")
	for _, name := range []string{"RolloutStepOpened", "RolloutComplete"} {
		p.lines(t, "the event "+name, "/api/events", url.Values{"namespace": {"default"}, "name": {"agent"}}, func(line []byte) bool { return strings.Contains(string(line), name) })
	}
	var line struct{ Moments []struct{ What string } }
	p.get(t, "/api/timeline", url.Values{"daemonset": {"default/agent"}}, &line)
	for _, what := range []string{"It is halted", "It waits for approval", "It is complete", "Somebody wrote"} {
		if !strings.Contains(fmt.Sprint(line.Moments), what) {
			t.Errorf("the timeline %v does not say %q", line.Moments, what)
		}
	}
	var revisions []struct{ Number int64 }
	p.get(t, "/api/revisions", url.Values{"daemonset": {"default/agent"}}, &revisions)
	if len(revisions) < 2 {
		t.Errorf("the revisions are %v", revisions)
	}
	seen := p.phase(t, "Complete")
	c.kubectl(t, "patch", "ds/agent", "--type=merge", "-p", `{"spec":{"minReadySeconds":2}}`)
	if code, said := p.do(t, "undo", seen.undo(s.Rollout.StableRevision)); code != http.StatusBadRequest || !strings.Contains(said, "somebody has changed daemonset default/agent meanwhile") {
		t.Errorf("undo of what was seen before: %d %s", code, said)
	}
	if code, said := p.do(t, "abort", map[string]any{"revision": "another"}); code != http.StatusBadRequest || !strings.Contains(said, "nothing is aborted") {
		t.Errorf("abort of another revision: %d %s", code, said)
	}
	await(t, "the page shows the change", func(context.Context) error {
		if s := p.phase(t, "Complete"); s.Generation == seen.Generation {
			return errors.New("it does not yet")
		}
		return nil
	})
	if code, said := p.do(t, "undo", p.phase(t, "Complete").undo(s.Rollout.StableRevision)); code != http.StatusOK {
		t.Errorf("undo: %d %s", code, said)
	}
	p.phase(t, "WaitingForApproval")
	if code, said := p.do(t, "approve", map[string]any{"step": "All"}); code != http.StatusOK {
		t.Errorf("approve: %d %s", code, said)
	}
	p.phase(t, "Complete")
	c.images(t, "example.com/agent:1")
}

// browse looks at the page in a real browser.
func (c *cluster) browse(t *testing.T, p *page) {
	path, err := exec.LookPath("chromium")
	if err != nil {
		t.Log("there is no Chromium on this machine; make deps installs it")
		return
	}
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(path), chromedp.NoSandbox, chromedp.DisableGPU,
		chromedp.UserDataDir(t.TempDir()), chromedp.WSURLReadTimeout(time.Minute))
	ctx, stop := chromedp.NewExecAllocator(t.Context(), options...)
	defer stop()
	ctx, cancel := chromedp.NewContext(ctx)
	defer cancel()
	if err := chromedp.Run(ctx, chromedp.Navigate(p.address+"/#key="+p.key)); err != nil {
		t.Fatalf("open the page: %v", err)
	}
	for selector, text := range map[string]string{"#set-list": "WaitingForApproval", "#legend": fmt.Sprintf("Ready %d", nodes), "#cluster": "12 nodes"} {
		await(t, selector+" shows "+text, func(context.Context) error {
			var seen string
			err := chromedp.Run(ctx, chromedp.Evaluate(fmt.Sprintf("document.querySelector(%q)?.textContent ?? ''", selector), &seen))
			if err == nil && !strings.Contains(seen, text) {
				err = fmt.Errorf("it shows %q", seen)
			}
			return err
		})
	}
}

// fewRights are callers who may not do all. What they may not they are told.
func (c *cluster) fewRights(t *testing.T) {
	c.kubectl(t, "apply", "-f", c.example(t, "reader-rbac.yaml"))
	reader := c.caller(t, "reader", "")
	c.kubectl(t, "create", "clusterrolebinding", "reader", "--clusterrole=everynode:reader", "--serviceaccount=default:reader")
	read := func(kubeconfig string, args ...string) answer { return c.as(t, kubeconfig, c.everynode, args...) }
	read(reader, "why", "daemonset/agent").ends(t, 0).says(t, "12 Current", "policy agents")
	read(reader, "why", "sim-0001").ends(t, 0)
	read(reader, "plan", "-f", "agent-2.yaml").ends(t, 2).says(t, "canary", "the server may not be asked to try DaemonSet default/agent")
	read(reader, "rollout", "status", "daemonset/agent").ends(t, 0).says(t, "Complete")
	read(reader, "rollout", "pause", "daemonset/agent").ends(t, 1).says(t, "that needs the right to update daemonsetrollouts in namespace default, which the role admin has")
	p := c.dashboard(t, reader)
	seen := p.phase(t, "Complete")
	older := ""
	for revision, number := range seen.Numbers {
		if number == 2 {
			older = revision
		}
	}
	may := map[string]bool{}
	p.get(t, "/api/rights", url.Values{"daemonset": {"default/agent"}}, &may)
	if may["steer"] || may["undo"] {
		t.Errorf("a reader may %v", may)
	}
	for verb, want := range map[string]string{"pause": "that needs the right to update daemonsetrollouts", "undo": "forbidden"} {
		if code, said := p.do(t, verb, seen.undo(older)); code < 400 || !strings.Contains(said, want) {
			t.Errorf("a reader is answered to %s: %d %s", verb, code, said)
		}
	}

	// Who sees one namespace sees no nodes.
	viewer := c.caller(t, "viewer", "view")
	read(viewer, "rollout", "status", "daemonset/agent").ends(t, 0).says(t, "Complete")
	for _, command := range [][]string{{"why", "daemonset/agent"}, {"plan", "-f", "agent-2.yaml"}, {"dashboard", "--port=0", "--no-browser"}} {
		read(viewer, command...).ends(t, 1).says(t, "list nodes: nodes is forbidden", "everynode:reader")
	}
	nobody := c.caller(t, "nobody", "")
	read(nobody, "rollout", "status", "daemonset/agent").ends(t, 1).says(t, "you may not look at its rollout of daemonset default/agent: that needs the right to get daemonsetrollouts in namespace default, which the role view has")

	// Policies hidden: the rest is said, and that.
	c.kubectl(t, "create", "clusterrole", "no-policies", "--verb=get,list,watch", "--resource=nodes,pods,daemonsets.apps,controllerrevisions.apps")
	blind := c.caller(t, "blind", "")
	c.kubectl(t, "create", "clusterrolebinding", "blind", "--clusterrole=no-policies", "--serviceaccount=default:blind")
	const hidden = "RolloutPolicies may not be read"
	read(blind, "why", "daemonset/agent").ends(t, 0).says(t, "12 Current", hidden)
	if o := c.dashboard(t, blind).overview(t); !strings.Contains(o.Hidden, hidden) || o.Nodes != nodes {
		t.Errorf("the page's overview is %+v", o)
	}
}
