// Package browser plays with the dashboard in a real browser.
package browser

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/everynode/everynode/api/client"
	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/cli"
	"github.com/everynode/everynode/internal/testenv"
)

var pictures = flag.String("pictures", "", "folder for pictures of the page, such as docs/pictures")

// patience is how long the page may take to show something, on a machine with much else to do.
const patience = time.Minute

// out collects what a command prints.
type out struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (o *out) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Write(p)
}

func (o *out) find(pattern *regexp.Regexp) string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return pattern.FindString(o.text.String())
}

// open starts the dashboard of a cluster, and returns its address.
func open(t *testing.T, dataDir string) string {
	t.Helper()
	return openBy(t, dataDir, func(ctx context.Context, args []string, stdout, stderr *out) int {
		return cli.Execute(ctx, args, stdout, stderr)
	})
}

// openBy starts it by what runs everynode with arguments until ctx ends, and returns its exit code.
func openBy(t *testing.T, dataDir string, run func(ctx context.Context, args []string, stdout, stderr *out) int) string {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var printed, said out
	ended := make(chan int, 1)
	go func() {
		ended <- run(ctx, []string{"dashboard", "--data-dir", dataDir, "--port", "0", "--no-browser"}, &printed, &said)
	}()
	t.Cleanup(func() { cancel(); <-ended })
	address := regexp.MustCompile(`http://127\.0\.0\.1:\d+/#key=\S+`)
	for range 1200 {
		if url := printed.find(address); url != "" {
			return url
		}
		select {
		case code := <-ended:
			ended <- code
			t.Fatalf("the dashboard ended with %d: %s", code, said.find(regexp.MustCompile(`(?s).*`)))
		case <-time.After(50 * time.Millisecond):
		}
	}
	t.Fatal("the dashboard prints no address")
	return ""
}

// browser starts Chromium, with an empty profile of its own.
func browser(t *testing.T) context.Context {
	t.Helper()
	path := ""
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if found, err := exec.LookPath(name); err == nil {
			path = found
			break
		}
	}
	if path == "" {
		t.Skip("there is no Chromium on this machine; make deps installs it")
	}
	options := append(chromedp.DefaultExecAllocatorOptions[:],
		chromedp.ExecPath(path), chromedp.NoSandbox, chromedp.DisableGPU, chromedp.UserDataDir(t.TempDir()), chromedp.WindowSize(1280, 900),
		chromedp.WSURLReadTimeout(patience))
	ctx, stop := chromedp.NewExecAllocator(t.Context(), options...)
	t.Cleanup(stop)
	ctx, cancel := chromedp.NewContext(ctx)
	t.Cleanup(cancel)
	// The browser lives as long as the context of the first call.
	if err := chromedp.Run(ctx); err != nil {
		t.Fatalf("start %s: %v", path, err)
	}
	return ctx
}

// session is one page under test.
type session struct {
	t   *testing.T
	ctx context.Context //nolint:containedctx // It is the browser's page; each call to chromedp needs it.
}

func (s session) do(what string, actions ...chromedp.Action) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.ctx, patience)
	defer cancel()
	if err := chromedp.Run(ctx, actions...); err != nil {
		s.picture("failed")
		s.t.Fatalf("%s: %v", what, err)
	}
}

// shows waits until an element has a text.
func (s session) shows(selector, text string) {
	s.t.Helper()
	var last string
	deadline := time.Now().Add(patience)
	for time.Now().Before(deadline) {
		// A page that goes elsewhere meanwhile is no answer.
		err := chromedp.Run(s.ctx, chromedp.Evaluate(fmt.Sprintf(`document.querySelector(%q)?.textContent ?? ""`, selector), &last))
		if err != nil {
			last = err.Error()
			if s.ctx.Err() != nil {
				break
			}
		}
		if err == nil && strings.Contains(last, text) {
			return
		}
		time.Sleep(50 * time.Millisecond)
	}
	s.picture("failed")
	s.t.Fatalf("%s shows %.300q, want %q", selector, last, text)
}

// close closes the panel. The page beside it takes no keys until it is closed.
func (s session) close() {
	s.t.Helper()
	s.do("close", chromedp.Click("#panel-close"), chromedp.WaitNotVisible("#panel"))
}

// press clicks the first button whose text begins so, once it is there.
func (s session) press(within, text string) {
	s.t.Helper()
	var done bool
	deadline := time.Now().Add(patience)
	for time.Now().Before(deadline) {
		s.do("press "+text, chromedp.Evaluate(fmt.Sprintf(`(() => {
			const b = [...document.querySelectorAll(%q + ' button')].find((b) => b.textContent.startsWith(%q) && !b.disabled);
			b?.click();
			return Boolean(b);
		})()`, within, text), &done))
		if done {
			return
		}
		time.Sleep(50 * time.Millisecond)
	}
	s.picture("failed")
	s.t.Fatalf("there is no button %q in %s", text, within)
}

// undo goes back to the revision before, as soon as the page shows what there is.
func (s session) undo() {
	s.t.Helper()
	deadline := time.Now().Add(patience)
	for said := ""; !strings.Contains(said, "rolled back"); {
		if time.Now().After(deadline) {
			s.t.Fatalf("undo says %q", said)
		}
		s.press("#rollout", "Undo")
		s.press("#panel-body", "Undo")
		for said = ""; said == ""; {
			s.do("read the answer", chromedp.Evaluate(`document.querySelector("#panel-body [role=status]")?.textContent ?? ""`, &said))
		}
		s.close()
	}
}

// differs compares texts as the page does: what it shows must be both of them, and cost little.
func (s session) differs() {
	s.t.Helper()
	var wrong []string
	s.do("compare texts", chromedp.Evaluate(`(async () => {
		const { difference } = await import('/page.js');
		const wrong = [];
		const check = (a, b, most) => {
			const shown = [...difference(a.join('\n'), b.join('\n')).children];
			const of = (not) => shown.filter((l) => l.className !== not).map((l) => l.textContent.slice(2)).join('\n');
			if (of('added') !== a.join('\n') || of('removed') !== b.join('\n')) wrong.push(a.length + ' and ' + b.length + ' lines come out as others');
			const changed = shown.filter((l) => l.className !== 'same').length;
			if (changed > most) wrong.push(changed + ' lines differ, want at most ' + most);
		};
		let seed = 1;
		const chance = (n) => (seed = seed * 48271 % 2147483647) % n;
		for (let i = 0; i < 300; i++) check(Array.from({ length: 1 + chance(9) }, () => 'abc'[chance(3)]), Array.from({ length: 1 + chance(9) }, () => 'abc'[chance(3)]), 18);
		check(['a', 'b', 'c', 'd'], ['a', 'x', 'c', 'd', 'e'], 3);
		const long = Array.from({ length: 20000 }, (_, i) => 'line ' + i), other = long.slice();
		other[5] = 'x'; other.splice(15000, 2);
		check(long, other, 4);
		check(long.slice(0, 4000), long.slice(4000, 8000), 8000);
		return wrong;
	})()`, &wrong, chromedp.EvalAsValue, awaited))
	for _, text := range wrong {
		s.t.Error(text)
	}
}

func (s session) picture(name string) {
	if *pictures == "" {
		return
	}
	var image []byte
	ctx, cancel := context.WithTimeout(s.ctx, patience)
	defer cancel()
	if err := chromedp.Run(ctx, chromedp.Sleep(1200*time.Millisecond), chromedp.CaptureScreenshot(&image)); err != nil {
		s.t.Errorf("take a picture: %v", err)
		return
	}
	if err := errors.Join(os.MkdirAll(*pictures, 0o755), os.WriteFile(filepath.Join(*pictures, name+".png"), image, 0o644)); err != nil {
		s.t.Error(err)
	}
}

const nodes = 60

// fleet makes a cluster with a DaemonSet under a policy, and something hostile in its names.
func fleet(t *testing.T) (*testenv.Env, kubernetes.Interface) {
	t.Helper()
	env := testenv.Start(t, testenv.SimulatedNodes(nodes))
	core := kubernetes.NewForConfigOrDie(env.Config)
	env.Eventually("all nodes are there", func(ctx context.Context) error {
		list, err := core.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
		if err == nil && len(list.Items) != nodes {
			err = fmt.Errorf("%d nodes", len(list.Items))
		}
		return err
	})
	list, err := core.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for i := range list.Items {
		patch := fmt.Sprintf(`{"metadata":{"labels":{"topology.kubernetes.io/zone":"zone-%c"}}}`, "abc"[i%3])
		if _, err := core.CoreV1().Nodes().Patch(t.Context(), list.Items[i].Name, "application/merge-patch+json", []byte(patch), metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	own, err := client.NewForConfig(env.Config)
	if err != nil {
		t.Fatal(err)
	}
	_, err = own.RolloutPolicies("default").Create(t.Context(), &v1alpha1.RolloutPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: "agents"},
		Spec: v1alpha1.RolloutPolicySpec{Waves: []v1alpha1.Wave{
			{Name: "canary", Count: new(int32(3)), Approval: v1alpha1.ApprovalManual},
			{Name: "zones", Each: "topology.kubernetes.io/zone"},
		}},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	labels := map[string]string{"app": "agent"}
	_, err = core.AppsV1().DaemonSets("default").Create(t.Context(), &appsv1.DaemonSet{
		ObjectMeta: metav1.ObjectMeta{Name: "agent"},
		Spec: appsv1.DaemonSetSpec{Selector: &metav1.LabelSelector{MatchLabels: labels}, Template: corev1.PodTemplateSpec{
			ObjectMeta: metav1.ObjectMeta{Labels: labels, Annotations: map[string]string{"note": hostile}},
			Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "agent", Image: "example.com/agent:1"}}},
		}},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return env, core
}

// hostile is what a page must show, and never carry out.
const hostile = `<img src=x onerror="document.title='broken in'"><script>document.title='broken in'</script>`

func setImage(t *testing.T, core kubernetes.Interface, image string) {
	t.Helper()
	patch := fmt.Sprintf(`{"spec":{"template":{"spec":{"containers":[{"name":"agent","image":%q}]}}}}`, image)
	if _, err := core.AppsV1().DaemonSets("default").Patch(t.Context(), "agent", "application/strategic-merge-patch+json", []byte(patch), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
}

func TestPage(t *testing.T) {
	ctx := browser(t)
	env, core := fleet(t)
	url := open(t, env.DataDir())
	s := session{t, ctx}

	address, _, _ := strings.Cut(url, "#")
	s.do("open without the key", chromedp.Navigate(address))
	s.shows("#problem", "needs the key")
	s.shows("#set-list", "")

	s.do("put the key into the address", chromedp.Evaluate(fmt.Sprintf("void (location.href = %q)", url), nil))
	s.shows("#legend", fmt.Sprintf("Ready %d", nodes))
	s.shows("#attention", "Nothing needs you")
	// As everynode dashboard starts a browser: by a file that leads there.
	file := filepath.Join(t.TempDir(), "open.html")
	if err := os.WriteFile(file, fmt.Appendf(nil, "<meta http-equiv=\"refresh\" content=\"0; url=%s\">", url), 0o600); err != nil {
		t.Fatal(err)
	}
	s.do("open by a file", chromedp.Navigate("about:blank"), chromedp.Navigate("file://"+file))
	s.shows("#legend", fmt.Sprintf("Ready %d", nodes))
	var left string
	s.do("look at the address", chromedp.Location(&left))
	if strings.Contains(left, "key=") {
		t.Errorf("the key stays in the address: %s", left)
	}
	s.press("#set-list", "agent")
	s.shows("#legend", fmt.Sprintf("Current %d", nodes))
	s.shows("#rollout", "Complete")
	s.do("group by zone", chromedp.Evaluate(`(() => { const g = document.querySelector('#group'); g.value = 'topology.kubernetes.io/zone'; g.dispatchEvent(new Event('change')); })()`, nil))
	var groups int
	for range 1200 {
		s.do("count the groups", chromedp.Evaluate(`window.everynode.map.map?.groups.length ?? 0`, &groups))
		if groups == 3 {
			break
		}
		time.Sleep(50 * time.Millisecond)
	}
	if groups != 3 {
		t.Errorf("the map has %d groups, want 3 zones", groups)
	}

	setImage(t, core, "example.com/agent:2")
	s.shows("#rollout", "WaitingForApproval")
	s.shows("#legend", fmt.Sprintf("Waiting %d", nodes-3))
	s.shows("#attention .warn", "default/agent waits for approval")
	s.picture("dashboard")
	s.press("#rollout", "Approve")
	s.shows("#panel-body", "Let the next step of default/agent begin?")
	s.press("#panel-body", "Approve")
	s.shows("#panel-body [role=status]", "approved")
	s.press("#panel-body", "Close")
	s.shows("#rollout .phase", "Complete")
	s.shows("#legend", fmt.Sprintf("Current %d", nodes))

	s.press("#rollout", "Revisions")
	s.shows("#panel-body .removed", "example.com/agent:1")
	s.shows("#panel-body .added", "example.com/agent:2")
	s.shows("#panel-body pre", "onerror")
	s.picture("dashboard-revisions")
	s.close()
	s.differs()

	s.do("find a node by keys", chromedp.KeyEvent("/"), chromedp.WaitVisible("#find:focus"), chromedp.Evaluate(`document.querySelector("#find").value = ""`, nil), chromedp.SendKeys("#find", "sim-0007\r"))
	s.shows("#panel-title", "sim-0007")
	s.shows("#panel-body", "default/agent")
	s.shows("#panel-body", "posting ready status")
	s.press("#panel-body", "agent")
	s.shows("#panel-title", "· agent")
	s.close()
	s.do("walk on the map by keys", chromedp.Focus("#map"), chromedp.KeyEvent("\ue015"), chromedp.KeyEvent("\ue014"))
	s.do("open the cell", chromedp.Evaluate(`document.querySelector('#map').dispatchEvent(new KeyboardEvent('keydown', {key: 'Enter'}))`, nil))
	s.shows("#panel-title", "sim-")
	s.close()

	s.press("nav", "Plan a change")
	s.do("paste a manifest", chromedp.SetValue("#manifest", `{"apiVersion":"apps/v1","kind":"DaemonSet","metadata":{"name":"agent","namespace":"default"},
		"spec":{"selector":{"matchLabels":{"app":"agent"}},"template":{"metadata":{"labels":{"app":"agent"}},"spec":{"containers":[{"name":"agent","image":"example.com/agent:3"}]}}}}`), chromedp.Click("#plan"))
	s.shows("#panel-body pre", "example.com/agent:2 -> example.com/agent:3")
	s.do("plan nonsense", chromedp.SetValue("#manifest", "kind: Nonsense"), chromedp.Click("#plan"))
	s.shows("#panel-body [role=alert]", "DaemonSet")
	s.close()

	s.press("nav", "Events")
	s.shows("#panel-body", "RolloutComplete")
	s.close()
	s.press("#rollout", "Events")
	s.shows("#panel-body", "RolloutStepOpened")
	s.close()
	s.press("#rollout", "Timeline")
	s.shows("#panel-body", "It waits for approval")
	s.shows("#panel-body", "everynode-rollout wrote what is wanted of the rollout last")
	s.shows("#panel-body", "It is complete")
	s.picture("dashboard-timeline")
	s.close()
	// Somebody else changes it between the look and the yes.
	s.press("#rollout", "Undo")
	s.shows("#panel-body", "back to the revision before, 1 (")
	patch := []byte(`{"spec":{"minReadySeconds":1}}`)
	if _, err := core.AppsV1().DaemonSets("default").Patch(t.Context(), "agent", "application/merge-patch+json", patch, metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	s.press("#panel-body", "Undo")
	s.shows("#panel-body [role=status]", "nothing is undone: somebody has changed daemonset default/agent meanwhile")
	s.close()
	// Until the page shows the change, the same is said again.
	s.undo()
	s.shows("#rollout", "WaitingForApproval")
	// What is halted can be tried again, or taken back.
	bad := []byte(`{"spec":{"template":{"spec":{"priorityClassName":"none-such"}}}}`)
	if _, err := core.AppsV1().DaemonSets("default").Patch(t.Context(), "agent", "application/merge-patch+json", bad, metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	s.shows("#rollout .phase", "Halted")
	s.shows("#rollout .actions", "Retry")
	s.press("#rollout", "Abort")
	s.shows("#panel-body", "Take default/agent from revision")
	s.press("#panel-body", "Abort")
	s.shows("#panel-body [role=status]", "is aborted")
	s.close()
	s.shows("#rollout .phase", "RolledBack")
	s.shows("#attention .bad", "default/agent rolled back")

	s.do("dark, and on a phone", emulation.SetEmulatedMedia().WithFeatures([]*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: "dark"}}), chromedp.EmulateViewport(390, 844))
	s.picture("dashboard-phone")
	var wide bool
	s.do("look whether it fits a phone", chromedp.Evaluate(`document.documentElement.scrollWidth > innerWidth`, &wide))
	if wide {
		t.Error("the page is wider than a phone")
	}
	var title string
	s.do("read the title", chromedp.Title(&title))
	if title != "Everynode" {
		t.Errorf("what stands in the cluster was carried out: the title is %q", title)
	}
}

// TestFiftyThousandNodes shows a large map, and prints how fast it is.
func TestFiftyThousandNodes(t *testing.T) {
	ctx := browser(t)
	env := testenv.Start(t)
	s := session{t, ctx}
	s.do("open", chromedp.Navigate(open(t, env.DataDir())))
	s.shows("#set-list", "All nodes")
	var result struct {
		First, Pictures float64
		Nodes           int
	}
	s.do("show a large map", chromedp.Evaluate(`(async () => {
		const { map } = window.everynode;
		const n = 50000, groups = [];
		for (let i = 0; i < 50; i++) groups.push({ name: 'rack-' + i, first: i * 1000, count: 1000 });
		const picture = () => new Promise(requestAnimationFrame);
		const begin = performance.now();
		map.show({ nodes: Array.from({ length: n }, (_, i) => 'node-' + i), groups, states: ['FailedRevision', 'Changing', 'Waiting', 'Current'], cells: new Uint8Array(n).fill(2) });
		await picture(); await picture();
		const first = performance.now() - begin;
		const from = map.pictures, start = performance.now();
		for (let i = 0; performance.now() - start < 3000; i++) {
			map.change(Array.from({ length: 15 }, (_, k) => [(i * 15 + k) % n, 1 + 2 * (i % 2)]));
			await new Promise((done) => setTimeout(done, 250));
		}
		return { First: first, Pictures: (map.pictures - from) / (performance.now() - start) * 1000, Nodes: map.map.nodes.length };
	})()`, &result, chromedp.EvalAsValue, awaited))
	t.Logf("%d nodes: first picture after %.0f ms; %.0f pictures a second with 60 changes a second", result.Nodes, result.First, result.Pictures)
	if result.Nodes != 50000 || result.Pictures == 0 {
		t.Errorf("it shows %d nodes, and drew %v pictures a second", result.Nodes, result.Pictures)
	}
}

func awaited(p *runtime.EvaluateParams) *runtime.EvaluateParams { return p.WithAwaitPromise(true) }
