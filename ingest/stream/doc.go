// Package stream carries the frames of rings over a TCP or Unix connection, from an agent to a server, and tells the agent what is
// durable. docs/formats/agent.md says what every byte means.
//
// A [Conn] is the agent's end. It never waits: what it is given goes out in the background, what comes in is fetched with
// [Conn.Events]. A [Server] is the other end. It hands what arrives to a function and acknowledges it when that function has
// returned nil: an acknowledgement is a promise that the frames survive the server. What the server has no room for is
// answered with *busy* and sent again; nothing that one connection does costs another anything.
//
// The package knows frames by their sequence numbers and nothing of what they say. It imports only wire, so that an agent
// stays small.
package stream
