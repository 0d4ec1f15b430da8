// Package podworker decides what a node does for one pod, and what it says about it.
//
// It is the state machine of the node agent and of the simulated nodes. It is pure: it has no clock, no lock, no
// goroutine and no client. The caller owns one Memory per pod, hands it in with the pod, what the runtime holds and
// the time, carries out the actions that come back, and tells the Memory when each began and how it ended:
//
//	for {
//		plan := podworker.Decide(in)
//		for _, action := range plan.Actions {
//			in.Memory.Begin(action, now)
//			outcome := perform(action)            // at once, or in the background
//			in.Memory.Done(action, outcome, now)
//		}
//		// decide again when the pod, the runtime or a probe changes, when an action ended, or at plan.Deadline
//	}
//
// # States of a pod
//
//	                     node refuses it (Memory.Reject)
//	seen in the API ───────────────────────────────────────────────┐
//	     │                                                         │
//	     ▼                                                         ▼
//	SetUpVolumes ──► CreateSandbox ──► init containers ──► app containers     Finished
//	     ▲               ▲  sandbox died: kill what is left,  │  ▲  │ none      (Failed, Succeeded):
//	     └ retry         └─ StopSandbox, CreateSandbox ◄──────┘  │  │ restarts   kill leftovers,
//	                                              restart, with  └──┤            StopSandbox,
//	                                              back-off          └──────────► TearDownVolumes,
//	                                                                             dead containers stay
//	any of these, once the pod is being deleted or no longer in the API:         │
//	     ▼                                                                       ▼
//	KillContainer (apps together, then sidecars last to first) ──► StopSandbox ──► RemoveContainer
//	     ──► RemoveSandbox ──► TearDownVolumes ──► Finish (delete the API object) ──► Forget
//
// # States of a container
//
//	none ──► PullImage ──► StartContainer ──► running ──► exited ──► (policy says so) back-off ──► PullImage ...
//	           │ fails          │ fails          │ probe failed, spec changed: KillContainer
//	           ▼                ▼
//	     ErrImagePull,    CreateContainerConfigError, CreateContainerError,
//	     ImagePullBackOff RunContainerError, PostStartHookError; tried again later
//
// # Rules it keeps
//
//   - Actions that build up or clear away (everything but KillContainer and Announce) are serial: none is returned
//     while one is under way. Kills run beside them and beside each other.
//   - A container is started only if no container of its name runs, exists in an unknown state, or is being started.
//   - A container's restart count never falls; a start always has a higher attempt than every container seen.
//   - A worker without memory (a restarted agent) that finds a pod's containers running starts nothing.
//   - A pod that is being deleted ends in Finish, whatever state it was in.
//   - One dead container per name is kept, for its logs and its exit code.
package podworker
