package matrix

import (
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/everynode/everynode/internal/change/fetch"
	"github.com/everynode/everynode/internal/controller/daemonset/matrix/action"
	"github.com/everynode/everynode/internal/controller/daemonset/matrix/row"
)

// Where pods ask nodes for images, also beside another controller, the matrix says how many may be asked at once and how
// long each may take. While nodes wait to be asked no daemon is taken away, and no deadline runs.
func TestPodsAskNodes(t *testing.T) {
	for _, guest := range []bool{false, true} {
		cfg := row.Config{Guest: guest, Fetches: true, FetchPods: true, StatusInterval: time.Millisecond}
		w := followingBy(t, cfg, 10, "waves: [{name: all, nodes: {}, maxUnavailable: 30%, fetch: true, fetchDeadline: 2m}]")
		said := func(r fetch.Report) {
			for _, p := range w.pods {
				p.Fetch = r
				w.setPod(p)
			}
		}
		w.update()
		asked := map[types.UID]bool{}
		for range 5 {
			for _, a := range w.ready() {
				if f, is := a.(*action.FetchImages); is {
					asked[f.PodUID] = true
					atOnce, patience, ok := w.m.MayFetch("logs", f.Node)
					if f.Revision != "b" || !ok || atOnce != 3 || patience != 2*time.Minute {
						t.Errorf("guest %v: %v, %d at once, for %s", guest, f, atOnce, patience)
					}
				}
			}
			if taken := w.answerAll(action.OK); len(taken) > 0 {
				t.Errorf("guest %v: %v before anybody has the images", guest, taken[0])
			}
		}
		if _, _, ok := w.m.MayFetch("logs", "nobody"); ok {
			t.Errorf("guest %v: a node that is not there may be asked", guest)
		}
		if len(asked) != 10 {
			t.Fatalf("guest %v: %d nodes are to be asked", guest, len(asked))
		}
		said(fetch.Report{Revision: "b", At: w.now, Queued: true})
		w.tick(time.Hour)
		if taken := w.answerAll(action.OK); len(taken) > 0 {
			t.Errorf("guest %v: %v while all wait to be asked", guest, taken[0])
		}
		if s, _ := w.m.Rollout("logs"); s.Fetch == nil || !s.Fetch.ByPods || s.Fetch.Message != "" {
			t.Errorf("guest %v: the rollout says %+v", guest, s.Fetch)
		}
		said(fetch.Report{Revision: "b", At: w.now})
		w.tick(2*time.Minute - time.Second)
		if taken := w.answerAll(action.OK); len(taken) > 0 {
			t.Errorf("guest %v: %v before the deadline", guest, taken[0])
		}
		w.tick(time.Second)
		if taken := w.answerAll(action.OK); len(taken) != 3 {
			t.Errorf("guest %v: %d daemons are taken after the deadline", guest, len(taken))
		}
	}
}
