package client

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/everynode/everynode/internal/change/prepull"
	"github.com/everynode/everynode/internal/node/imagepull"
)

func TestChosenNodes(t *testing.T) {
	l := &lists{client: fake.NewClientset(
		&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "b", Labels: map[string]string{"disk": "ssd"}}},
		&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "a", Labels: map[string]string{"disk": "ssd"}}},
		&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "c"}})}
	for name, c := range map[string]struct {
		chosen
		want string
	}{
		"all":            {chosen{all: true, parallel: 1}, "a b c"},
		"by labels":      {chosen{selector: "disk=ssd", parallel: 1}, "a b"},
		"by name":        {chosen{names: []string{"c", "a"}, parallel: 1}, "a c"},
		"no such name":   {chosen{names: []string{"a", "x"}, parallel: 1}, `there is no node "x"; nothing was done`},
		"no such labels": {chosen{selector: "disk=none", parallel: 1}, "there are no such nodes"},
		"not chosen":     {chosen{parallel: 1}, "say on which nodes, with one of"},
		"chosen twice":   {chosen{all: true, names: []string{"a"}, parallel: 1}, "with one of"},
		"bad labels":     {chosen{selector: "a=(", parallel: 1}, "--selector"},
		"none at a time": {chosen{all: true}, "--parallel 0"},
	} {
		err := c.check()
		var got []string
		if err == nil {
			got, err = c.find(t.Context(), l)
		}
		says := strings.Join(got, " ")
		if err != nil {
			says = err.Error()
		}
		if !strings.Contains(says, c.want) {
			t.Errorf("%s: %s, want %s", name, says, c.want)
		}
	}
}

func TestPullingIsTold(t *testing.T) {
	var out bytes.Buffer
	p := &pulling{out: &out, total: 3, under: map[string]bool{}}
	for _, node := range []string{"a", "b", "c"} {
		p.begins(node)
	}
	p.ends(prepull.Result{Node: "b", State: imagepull.Pulled, Bytes: 42 << 20, Took: 3210 * time.Millisecond})
	p.waiting()
	p.waiting()
	p.ends(prepull.Result{Node: "a", State: imagepull.Present})
	p.ends(prepull.Result{Node: "c", State: imagepull.Failed, Err: errors.New("evil\x1b[2J\nc: is there")})
	done := make(chan struct{})
	close(done)
	err := p.watch(context.Background(), done)
	const want = "b: pulled in 3.2s, 42Mi (1 of 3)\nstill pulling: a, c\na: is there (2 of 3)\nc: failed: evil"
	if !strings.HasPrefix(out.String(), want) || strings.Contains(out.String(), "\x1b") ||
		strings.Count(out.String(), "\n") != 4 {
		t.Errorf("it says %q, want %q", out.String(), want)
	}
	if err == nil || err.Error() != "2 of 3 nodes have the image" {
		t.Errorf("at the end: %v", err)
	}
}
