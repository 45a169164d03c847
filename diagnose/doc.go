// Package diagnose argues why a request was slow: it takes the account, looks at what shared the request's iterations, and
// states findings with the milliseconds they explain, who is responsible, and the command that shows the evidence. It blames
// nobody for what is small, and names nothing that the records do not show.
package diagnose
