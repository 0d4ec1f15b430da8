// Package prepull asks agents of nodes, through the API server, to pull an image before pods need it, and to keep it.
package prepull

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"

	"github.com/everynode/everynode/internal/node/imagepull"
	"github.com/everynode/everynode/internal/untrusted/bounded"
)

// silence is how long a node may say nothing before it is given up; maxLine bounds a line that it says, maxAnswer all
// that it says where it does not tell of a pull, in bytes.
const (
	silence   = 6 * imagepull.Beat
	maxLine   = 64 << 10
	maxAnswer = 1 << 20
)

// Order says what to pull and how.
type Order struct {
	Image string
	// Pin keeps the image, Always asks the registry also for one that is there.
	Pin, Always bool
	// Parallel is how many nodes pull at one time.
	Parallel int
	// Timeout is how long one node may take; 0 for as long as it says that it pulls.
	Timeout time.Duration
}

// Result is what became of one node.
type Result struct {
	Node string
	// State is Present, Pulled or Failed; Err says why it failed.
	State imagepull.State
	Err   error
	Bytes uint64
	Took  time.Duration
}

// Client reaches the nodes.
type Client struct {
	api rest.Interface
	// silence is the constant, but in tests.
	silence time.Duration
}

// New returns a client for the cluster that config reaches.
func New(config *rest.Config) (*Client, error) {
	config = rest.CopyConfig(config)
	config.QPS, config.UserAgent = -1, "everynode"
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return wary{next} })
	client, err := corev1client.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("reach nodes by the API server: %w", err)
	}
	return &Client{api: client.RESTClient(), silence: silence}, nil
}

// wary bounds answers: what a node says is read as a whole, also when it says that something went wrong, and a node may
// be in wrong hands.
type wary struct{ next http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (w wary) RoundTrip(request *http.Request) (*http.Response, error) {
	response, err := w.next.RoundTrip(request)
	if err == nil &&
		(response.StatusCode >= http.StatusMultipleChoices || !strings.HasSuffix(request.URL.Path, imagepull.PullPath)) {
		response.Body = bounded.Body(response.Body, maxAnswer)
	}
	return response, err //nolint:wrapcheck // It is the transport's.
}

func (c *Client) to(request *rest.Request, node, path string) *rest.Request {
	return request.Resource("nodes").Name(node).SubResource("proxy").Suffix(path)
}

// Pull has the nodes pull. It tells of each when it begins, and of its result, one at a time; it ends when all have
// one, which takes no time for those that did not begin when ctx ends.
func (c *Client) Pull(ctx context.Context, nodes []string, o Order, begins func(node string), ends func(Result)) {
	each(nodes, o.Parallel, func(node string, alone func(func())) {
		if ctx.Err() != nil {
			alone(func() { ends(Result{Node: node, State: imagepull.Failed, Err: context.Cause(ctx)}) })
			return
		}
		alone(func() { begins(node) })
		began := time.Now()
		r := c.pull(ctx, node, o)
		r.Node, r.Took = node, time.Since(began)
		alone(func() { ends(r) })
	})
}

// each works on all, some at a time; alone runs something when no other does.
func each(nodes []string, parallel int, work func(node string, alone func(func()))) {
	var all sync.WaitGroup
	var mu sync.Mutex
	alone := func(do func()) {
		mu.Lock()
		defer mu.Unlock()
		do()
	}
	next := make(chan string)
	for range min(max(parallel, 1), len(nodes)) {
		all.Go(func() {
			for node := range next {
				work(node, alone)
			}
		})
	}
	for _, node := range nodes {
		next <- node
	}
	close(next)
	all.Wait()
}

func (c *Client) pull(ctx context.Context, node string, o Order) Result {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	quiet := time.AfterFunc(c.silence, func() {
		cancel(fmt.Errorf("the node has said nothing for %s", c.silence))
	})
	defer quiet.Stop()
	if o.Timeout > 0 {
		late := time.AfterFunc(o.Timeout, func() { cancel(fmt.Errorf("the node still pulled after %s", o.Timeout)) })
		defer late.Stop()
	}
	request := c.to(c.api.Post(), node, imagepull.PullPath).Param(imagepull.Image, o.Image).
		Param(imagepull.Pin, strconv.FormatBool(o.Pin)).Param(imagepull.Always, strconv.FormatBool(o.Always))
	last, err := follow(ctx, request, func() { quiet.Reset(c.silence) })
	switch {
	case err != nil && ctx.Err() != nil:
		err = context.Cause(ctx)
	case err == nil && last.State == imagepull.Failed:
		err = errors.New(last.Message)
	}
	if err != nil {
		return Result{State: imagepull.Failed, Err: explain(err)}
	}
	return Result{State: last.State, Bytes: last.Bytes}
}

// follow reads what a node says, until it says how it ended.
func follow(ctx context.Context, request *rest.Request, heard func()) (imagepull.Progress, error) {
	stream, err := request.Stream(ctx)
	if err != nil {
		return imagepull.Progress{}, err
	}
	defer func() { _ = stream.Close() }()
	lines := bufio.NewScanner(stream)
	lines.Buffer(nil, maxLine)
	for lines.Scan() {
		heard()
		var p imagepull.Progress
		if err := json.Unmarshal(lines.Bytes(), &p); err != nil {
			return p, fmt.Errorf("the node says what is no progress of a pull: %w", err)
		}
		switch p.State {
		case imagepull.Present, imagepull.Pulled, imagepull.Failed:
			return p, nil
		case imagepull.Pulling:
		default:
			return p, fmt.Errorf("the node says that the pull is %q", p.State)
		}
	}
	return imagepull.Progress{}, errors.Join(errors.New("the node did not say how the pull ended"), lines.Err())
}

// explain says what to do about an answer of the API.
func explain(err error) error {
	var status apierrors.APIStatus
	if errors.As(err, &status) && status.Status().Details != nil {
		for _, cause := range status.Status().Details.Causes {
			// An agent answers in words, as a kubelet does.
			if words := strings.TrimSpace(cause.Message); cause.Type == metav1.CauseTypeUnexpectedServerResponse && words != "" {
				err = fmt.Errorf("%w: %s", err, words)
			}
		}
	}
	switch {
	case apierrors.IsForbidden(err):
		return fmt.Errorf("%w; that needs the right to create nodes/proxy", err)
	case apierrors.IsNotFound(err):
		return fmt.Errorf("%w; there is no such node, or its agent is older than this program", err)
	}
	return err
}

// answer is what a node says to a request, or why it says nothing, in the API server's words if it has any.
func (c *Client) answer(ctx context.Context, request *rest.Request) ([]byte, error) {
	result := request.Timeout(c.silence).Do(ctx)
	if err := result.Error(); err != nil {
		return nil, err
	}
	return result.Raw()
}

// Pinned is what is kept on a node.
type Pinned struct {
	Node   string
	Images []string
	Err    error
}

// Pins asks nodes which images they keep, by the nodes' names.
func (c *Client) Pins(ctx context.Context, nodes []string, parallel int) []Pinned {
	out := make([]Pinned, 0, len(nodes))
	each(nodes, parallel, func(node string, alone func(func())) {
		p := Pinned{Node: node}
		data, err := c.answer(ctx, c.to(c.api.Get(), node, imagepull.PinsPath))
		if err == nil {
			var said imagepull.Pins
			err = json.Unmarshal(data, &said)
			p.Images = said.Images
		}
		if err != nil {
			p.Err = explain(err)
		}
		alone(func() { out = append(out, p) })
	})
	slices.SortFunc(out, func(a, b Pinned) int { return cmp.Compare(a.Node, b.Node) })
	return out
}

// Unpin has nodes let an image go. The result of one that kept it is Present, and has no state for one that did not.
func (c *Client) Unpin(ctx context.Context, nodes []string, image string, parallel int, ends func(Result)) {
	each(nodes, parallel, func(node string, alone func(func())) {
		r := Result{Node: node}
		var said imagepull.Unpinned
		data, err := c.answer(ctx, c.to(c.api.Delete(), node, imagepull.PinsPath).Param(imagepull.Image, image))
		if err == nil {
			err = json.Unmarshal(data, &said)
		}
		switch {
		case err != nil:
			r.State, r.Err = imagepull.Failed, explain(err)
		case said.Removed:
			r.State = imagepull.Present
		}
		alone(func() { ends(r) })
	})
}
