// Package pins decides what the images of a DaemonSet's pods are resolved to, where its policy pins them.
//
// A tag can name other bits tomorrow. Of a template the first node pulls its images by tag, alone. Its pod says in
// its status which digests it got, and all later pods of the template are made with them. A change of content keeps
// the digests of its template; to ask the registry again is another template, as kubectl rollout restart makes one.
//
// A Book stands between contents and the matrix. Where a policy pins, it tells the matrix whether a node may be first
// now. It is pure: no clock, lock, goroutine, log or client. One goroutine owns a Book.
//
// Rules:
//
//   - One node at a time is first, and the next one when its pod cannot tell: it fails, finds no room, is on its way
//     out, or has said nothing for patience.
//   - What was found out is told with the status of the rollout, for the stable template and the target's.
//   - A pod that was made with digests is believed before one that resolved a tag.
//   - An image whose digest the node does not know, such as one that was imported, is taken as written, and that is
//     told. One that is never pulled is as written too.
//   - Beside another controller a pod that waits behind the gate tells nothing yet (internal/beside/gates). One that
//     was made by tag while nobody answered, and runs other bits, is to the matrix none of its revision, so it is
//     replaced.
package pins
