package server

import (
	"context"
	"fmt"
	"net/http"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/client-go/kubernetes"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/metadata"
	restclient "k8s.io/client-go/rest"
	"k8s.io/client-go/tools/record"
	"k8s.io/utils/clock"

	"github.com/everynode/everynode/internal/apiserver"
	"github.com/everynode/everynode/internal/apiserver/bootstrap"
	"github.com/everynode/everynode/internal/members"
)

// actor is a control loop as the API knows it: with an account of its own, and
// the rights of that account's role, by whatever way it writes.
type actor struct {
	config *restclient.Config
	client kubernetes.Interface
	inside inside
	events record.EventBroadcaster
}

// recorder returns a recorder of events in the name of a component.
func (a *actor) recorder(component string) record.EventRecorder {
	return newLimitedRecorder(a.events.NewRecorder(knownKinds, corev1.EventSource{Component: component}), clock.RealClock{})
}

// metadata returns a client for the metadata of objects of any kind.
func (a *actor) metadata() (metadata.Interface, error) {
	objects, err := metadata.NewForConfig(a.config)
	if err != nil {
		return nil, fmt.Errorf("make a metadata client: %w", err)
	}
	return objects, nil
}

// actors makes them.
type actors struct {
	ctx context.Context //nolint:containedctx // Recorders of events take none, and end with the control loops.
	api *apiserver.Server
	all []*actor
}

// controller returns the control loop that runs under the account of that name.
func (a *actors) controller(name string) (*actor, error) {
	return a.account(bootstrap.ControllerAccount(name))
}

func (a *actors) account(account user.Info) (*actor, error) {
	config := a.configFor(account)
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("make the client of %s: %w", account.GetName(), err)
	}
	made := &actor{
		config: config, client: client, inside: inside{a.api.InsideDoorFor(account).In(members.TurnOf(a.ctx))},
		events: newBroadcaster(a.ctx),
	}
	made.events.StartRecordingToSink(controllerEvents{&typedcorev1.EventSinkImpl{Interface: client.CoreV1().Events("")}, made.inside, a.ctx})
	a.all = append(a.all, made)
	return made, nil
}

// configFor is what clients of an account are made from, whose writes are in the name of the
// turn in which the control loops work.
func (a *actors) configFor(account user.Info) *restclient.Config {
	config := a.api.ConfigFor(account)
	if turn := members.TurnOf(a.ctx); turn != nil {
		config.Wrap(func(next http.RoundTripper) http.RoundTripper { return inTurn{next, turn} })
	}
	return config
}

// inTurn makes requests in the name of a turn.
type inTurn struct {
	http.RoundTripper
	turn *members.Turn
}

// RoundTrip implements http.RoundTripper.
func (t inTurn) RoundTrip(r *http.Request) (*http.Response, error) {
	return t.RoundTripper.RoundTrip(r.WithContext(members.InTurn(r.Context(), t.turn)))
}

// stop ends the recording of events.
func (a *actors) stop() {
	for _, made := range a.all {
		made.events.Shutdown()
	}
}
