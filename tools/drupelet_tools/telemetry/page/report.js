// What the page does without the charts: a device's page opens when it is asked for, is found by
// its name, and a table sorts by the head that is pressed.
(function () {
  function show() {
    var wanted = location.hash.slice(1);
    try { wanted = decodeURIComponent(wanted); } catch (odd) { /* an id with a bare % */ }
    var page = wanted && document.getElementById(wanted);
    if (page && page.tagName === "DETAILS") { page.open = true; page.hidden = false;
      page.scrollIntoView(); }
  }
  addEventListener("hashchange", show);
  show();
  var find = document.getElementById("find");
  if (find) {
    find.addEventListener("input", function () {
      var wanted = find.value.toLowerCase();
      document.querySelectorAll("#devices > details").forEach(function (page) {
        var told = page.firstElementChild.textContent + " " + page.id;
        page.hidden = told.toLowerCase().indexOf(wanted) < 0;
      });
    });
  }
  function value(row, at) {
    var text = row.children[at].textContent.trim();
    var told = text.match(/^[+-]?[\d,]*\.?\d+(?=$|[^\d-])/);
    return told ? parseFloat(told[0].replace(/,/g, "")) : text.toLowerCase();
  }
  document.querySelectorAll("thead").forEach(function (top) {
    var body = top.parentElement.tBodies[0];
    var heads = top.rows[0].children;
    if (body.rows.length < 3) { return; }
    Array.prototype.forEach.call(heads, function (head, at) {
      head.tabIndex = 0;
      head.classList.add("sorts");
      function sort() {
        var down = head.getAttribute("aria-sort") === "descending";
        Array.prototype.forEach.call(heads, function (other) {
          other.removeAttribute("aria-sort"); });
        head.setAttribute("aria-sort", down ? "ascending" : "descending");
        var rows = Array.prototype.filter.call(body.rows, function (row) {
          return !row.classList.contains("total"); });
        rows.sort(function (one, other) {
          var a = value(one, at), b = value(other, at);
          if (typeof a !== typeof b) { return typeof a === "number" ? -1 : 1; }
          return (a < b ? 1 : a > b ? -1 : 0) * (down ? -1 : 1);
        });
        rows.forEach(function (row) { body.insertBefore(row, body.querySelector(".total")); });
      }
      head.addEventListener("click", sort);
      head.addEventListener("keydown", function (event) {
        if (event.key === "Enter") { sort(); } });
    });
  });
})();
