package members

import "context"

// Where it is written whose control loops work.
const (
	LoopsNamespace = "kube-system"
	LoopsLease     = "everynode-controllers"
)

// Turn is a stretch of time in which the control loops of one server work. What they write
// in its name is refused once another turn has begun, so that a server that stood still
// meanwhile does nothing that it had decided before.
type Turn struct {
	// Key is what each turn writes again in the database, Revision when this one did.
	Key      string
	Revision int64
	// Lost is called when a write was refused; perhaps more than once, by any goroutine.
	Lost func()
}

type turnKey struct{}

// InTurn returns a context whose writes are in the name of a turn; nil is nobody's.
func InTurn(ctx context.Context, t *Turn) context.Context {
	if t == nil {
		return ctx
	}
	return context.WithValue(ctx, turnKey{}, t)
}

// TurnOf is in whose name a context's writes are; nil for nobody's.
func TurnOf(ctx context.Context) *Turn {
	t, _ := ctx.Value(turnKey{}).(*Turn)
	return t
}
