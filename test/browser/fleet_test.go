package browser

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/everynode/everynode/internal/testenv"
	"github.com/everynode/everynode/internal/testenv/eventually"
)

var fleetNodes = flag.Int("nodes", 200, "how many simulated nodes the fleet of TestAFleetThatChanges has")

// seen is what a page has shown, and when.
type seen struct {
	// First is milliseconds from the opening of the page until all nodes were drawn.
	First float64
	Nodes int
}

// moving is what a page showed of a rollout.
type moving struct {
	// Seconds is for how long it was watched. Stuck is the longest time for which the browser could not draw, Quiet the
	// longest without news, both in milliseconds.
	Seconds, Stuck, Quiet           float64
	Frames, Pictures, News, Changes int
}

// whenDrawn notes when the map has all nodes; it runs before the page's own scripts.
const whenDrawn = `window.drawn = new Promise((done) => {
	const look = () => {
		const m = window.everynode?.map;
		if (m?.map?.nodes.length === %d && m.pictures > 0) done({ First: performance.now(), Nodes: m.map.nodes.length });
		else requestAnimationFrame(look);
	};
	requestAnimationFrame(look);
})`

// watched counts what the browser could draw and what was drawn, from the first change on.
const watched = `(async () => {
	const { map } = window.everynode;
	const change = map.change;
	const seen = { Frames: 0, News: 0, Changes: 0, Stuck: 0, Quiet: 0 };
	let began, last, news;
	const begun = new Promise((done) => { began = done; });
	map.change = (all) => {
		const now = performance.now();
		seen.Quiet = Math.max(seen.Quiet, now - (news ?? now));
		news = now;
		seen.News++;
		seen.Changes += all.length;
		change.call(map, all);
		began();
	};
	await begun;
	const start = last = performance.now(), from = map.pictures;
	while (performance.now() - start < %d) {
		await new Promise(requestAnimationFrame);
		const now = performance.now();
		seen.Stuck = Math.max(seen.Stuck, now - last);
		last = now;
		seen.Frames++;
	}
	map.change = change;
	return { ...seen, Seconds: (performance.now() - start) / 1000, Quiet: Math.max(seen.Quiet, performance.now() - news), Pictures: map.pictures - from };
})()`

// TestAFleetThatChanges opens the page of a cluster of simulated nodes, looks at a DaemonSet
// while it changes, and prints how fast the page is.
func TestAFleetThatChanges(t *testing.T) {
	n, patient := *fleetNodes, patience+time.Duration(*fleetNodes)*20*time.Millisecond
	ctx := browser(t)
	env := testenv.Start(t, testenv.SimulatedNodes(n))
	sets := env.Client.AppsV1().DaemonSets(metav1.NamespaceDefault)
	few := intstr.FromInt32(60)
	ds := &appsv1.DaemonSet{
		ObjectMeta: metav1.ObjectMeta{Name: "agent"},
		Spec: appsv1.DaemonSetSpec{
			Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "agent"}},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "agent"}},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "agent", Image: "example.com/agent:1"}}},
			},
			// Some 60 nodes change in a second.
			MinReadySeconds: 1,
			UpdateStrategy:  appsv1.DaemonSetUpdateStrategy{Type: appsv1.RollingUpdateDaemonSetStrategyType, RollingUpdate: &appsv1.RollingUpdateDaemonSet{MaxUnavailable: &few}},
		},
	}
	if _, err := sets.Create(t.Context(), ds, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually.Nil(t, patient, "all nodes have the daemon", func(ctx context.Context) error {
		now, err := sets.Get(ctx, "agent", metav1.GetOptions{})
		if err == nil && int(now.Status.NumberAvailable) != n {
			err = fmt.Errorf("%d of %d", now.Status.NumberAvailable, n)
		}
		return err
	})

	s := session{t, ctx}
	begin := time.Now()
	address := openApart(t, env.DataDir())
	s.do("note when the map is drawn", chromedp.ActionFunc(func(ctx context.Context) error {
		_, err := page.AddScriptToEvaluateOnNewDocument(fmt.Sprintf(whenDrawn, n)).Do(ctx)
		return err
	}))
	var drawn seen
	s.do("open", chromedp.Navigate(address), chromedp.Evaluate(`window.drawn`, &drawn, chromedp.EvalAsValue, awaited))
	t.Logf("%d nodes drawn %.1f s after the start of the program", drawn.Nodes, time.Since(begin).Seconds())
	s.press("#set-list", "agent")
	s.shows("#legend", fmt.Sprintf("Current %s", thousands(n)))
	s.do("open it again", chromedp.Reload(), chromedp.Evaluate(`window.drawn`, &drawn, chromedp.EvalAsValue, awaited))
	t.Logf("a page of %d nodes: first picture after %.0f ms", drawn.Nodes, drawn.First)
	s.shows("#legend", fmt.Sprintf("Current %s", thousands(n)))

	change := []byte(`{"spec":{"template":{"spec":{"containers":[{"name":"agent","image":"example.com/agent:2"}]}}}}`)
	if _, err := sets.Patch(t.Context(), "agent", "application/strategic-merge-patch+json", change, metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	forMillis := 2000
	if n > 1000 {
		forMillis = 20000
	}
	for _, part := range []string{"all nodes wait", "they change"} {
		var moved moving
		s.do("watch the rollout", chromedp.Evaluate(fmt.Sprintf(watched, forMillis), &moved, chromedp.EvalAsValue, awaited))
		each := func(n int) float64 { return float64(n) / moved.Seconds }
		t.Logf("%s: %.0f cells changed in a second, for %.1f s, told %.1f times a second and after %.0f ms at most; %.0f pictures a second of %.0f that could be, for at most %.0f ms none could",
			part, each(moved.Changes), moved.Seconds, each(moved.News), moved.Quiet, each(moved.Pictures), each(moved.Frames), moved.Stuck)
		if moved.Changes == 0 || moved.Pictures == 0 {
			t.Errorf("of the rollout the page showed %+v", moved)
		}
	}
	s.picture("dashboard-fleet")
}

// openApart starts the dashboard in a process of its own where there is a program for that, as people do.
func openApart(t *testing.T, dataDir string) string {
	t.Helper()
	program := os.Getenv("EVERYNODE_BINARY")
	if program == "" {
		return open(t, dataDir)
	}
	return openBy(t, dataDir, func(ctx context.Context, args []string, stdout, stderr *out) int {
		cmd := exec.CommandContext(ctx, program, args...)
		cmd.Stdout, cmd.Stderr = stdout, stderr
		if err := cmd.Start(); err != nil {
			t.Errorf("start %s: %v", program, err)
			return 1
		}
		_ = cmd.Wait() // it ends by a signal
		t.Logf("the program's processor time was %.1f s", (cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()).Seconds())
		return cmd.ProcessState.ExitCode()
	})
}

// thousands writes a number as the page does.
func thousands(n int) string {
	if n < 1000 {
		return fmt.Sprint(n)
	}
	return fmt.Sprintf("%s,%03d", thousands(n/1000), n%1000)
}
